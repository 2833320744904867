// Package deploy holds what brings weft onto machines, and tests of it; it has no code of its own.
//
//	weftd.service     a unit for systemd; weftd.service.d has additions for it
//	image/            Dockerfile of both images, and the scripts that flannel's image has
//	kubernetes/       one manifest, which is also the base of a kustomization, and overlays
//	chart/weft/       a Helm chart with the same content
//	release/          static binaries for every architecture, checksums, lists of what is in them
//
// What is rendered is tried against a real API server in test/kube, and the images in test/image.
package deploy
