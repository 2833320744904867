// Package underlay chooses the link that carries the datagrams between nodes, and checks later whether the
// link and its addresses are still there. It also finds the addresses that this host would no longer reach if
// an overlay's route took the place of the route to them.
//
// Choose takes the first interface that passes, among those that the options propose (choose.go,
// candidates.go). State.Refresh checks whether that link and its addresses are still there, and replaces an
// address that stays away (refresh.go). FindDisplaced compares the host's own routes with the overlay's
// networks (hostroutes.go).
//
// ReadDevices reads what the link's device and those under it (below.go) do for datagrams, and
// Devices.Outlet decides by that how superpackets leave (features.go).
//
// Every decision is a pure function of a listing of the kernel's state; the files for Linux read the listing.
// Nothing here changes the kernel.
package underlay
