// Package linuxrouter programs the routes of a Linux router for a controller of networks of type route-hook
// (routing/routecontrol): the reference for programmers of other things.
package linuxrouter
