// Package routecontrol is a reference for controllers of networks of type route-hook: it takes the views of nodes, makes one set of routes out of
// them, and programs the Linux router that it runs on. It keeps nothing on disk: nodes give their views again within a minute or so, and until all had
// the time to, it removes no route that an earlier process made.
package routecontrol
