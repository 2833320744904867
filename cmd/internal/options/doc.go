// Package options turns the daemon's command line and environment into a Config.
//
//	flags > WEFTD_* > FLANNELD_* > default
//
// Reader reads them again for a reload, with the file of --environment-file in the environment's place.
//
// An empty environment variable counts as unset, as for flannel. Everything is
// checked in one place and every fault is reported at once. Config remembers
// where each value came from, for --check. No secret can be read out of a
// printed Config. StoreFlags is the part of it that the weft command shares.
package options
