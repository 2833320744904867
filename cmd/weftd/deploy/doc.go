// Package deploy holds the files by which weft is installed, and their tests; it has no code of its own.
//
//	weftd.service     a unit for systemd; weftd.service.d has additions for it
//	apparmor          profiles for weft without root on Ubuntu
//	image/            the Dockerfile of both images, and scripts with the names of those in flannel's image
//	kubernetes/       a manifest that is also the base of a kustomization, its overlays, and leave/ for the way back
//	chart/weft/       a Helm chart with the same content
//	release/          scripts that build and publish binaries, checksums and lists of what is in them
//
// test/kube tries the manifests and the chart against a real API server, and test/image tries the images.
package deploy
