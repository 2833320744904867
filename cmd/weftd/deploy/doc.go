// Package deploy holds the files by which weft is installed, and their tests; it has no code of its own.
//
//	weftd.service     a unit for systemd; weftd.service.d has additions for it
//	image/            Dockerfile of both images, and the scripts that flannel's image has
//	kubernetes/       one manifest, which is also the base of a kustomization, and overlays
//	chart/weft/       a Helm chart with the same content
//	release/          static binaries for every architecture, checksums, lists of what is in them
//
// test/kube tries the manifests and the chart against a real API server, and test/image tries the images.
package deploy
