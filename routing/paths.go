package routing

import (
	"weft/tunnel"
)

// Status.Path has one of these values if it is not weft's data plane that moves the packets, else the
// name of a tunnel.Path.
const (
	PathKernel = "kernel" // weft tells the kernel what to do
	// weft moves them by WireGuard in user space, without its own data plane
	PathUserspace = "userspace"
	PathCommand   = "command" // the operator's commands make peers reachable
	PathHook      = "routes"  // whoever has the routes that a controller of the operator's programs
	PathNone      = "none"    // no packets are moved for anybody
)

// CarriesNothing reports whether no packets are moved by weft's own data plane on path, of a Status.
func CarriesNothing(path string) bool {
	return path == PathKernel || path == PathCommand || path == PathHook || path == PathNone ||
		path == PathUserspace
}

// paths are those of the data plane that this build has, the best first.
func paths() []tunnel.Path {
	return []tunnel.Path{tunnel.PathRaw, tunnel.PathSocket, tunnel.PathPortable}
}

// pathAuto is the configuration's word for the best path that is possible.
const pathAuto = "auto"

// PathWords are what the network config's key Path takes, the word for a choice first.
func PathWords() []string {
	words := []string{pathAuto}
	for _, p := range paths() {
		words = append(words, p.String())
	}
	return words
}

// resolvePath turns one of PathWords, or none, into the path that is used.
func resolvePath(word string) (p tunnel.Path, auto bool) {
	for _, p := range paths() {
		if p.String() == word {
			return p, false
		}
	}
	return paths()[0], true
}
