// Package wireguard is what type wireguard has below routing: the keys and the file of the private one, and a
// driver for devices. The driver compares what a device was told with what it is to have, and tells it the
// difference, by the same calls whether the kernel has the device (wgctrl) or this process does (the
// library's own device and Bind, whose TUN and sockets may lie in two network namespaces).
package wireguard
