// Package wireguard is what type wireguard has below routing: keys and the file of the private one, what a device is to have and what
// leads there (pure), and two kinds of devices: the kernel's, and one in user space, whose TUN and sockets are opened here, so that they
// may lie in two network namespaces.
package wireguard
