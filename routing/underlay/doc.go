// Package underlay chooses the link that carries the datagrams between nodes, and says what becomes of it later;
// and it finds the addresses that this host would no longer reach if an overlay's route took the place of the
// route to them.
//
// Choose takes the first that passes of what the options propose (choose.go, candidates.go). State.Refresh sees
// whether that link and its addresses still are there, and replaces an address that stays away (refresh.go).
// FindDisplaced compares the host's own routes with the overlay's networks (hostroutes.go).
//
// What is decided is pure, on a listing of the kernel's state; the files for Linux read the listing. Nothing here
// changes the kernel.
package underlay
