package doctor

import "time"

// checkRoutes looks at what the controller of a network of type route-hook says of this node's routes, and at
// the files with which it is asked.
func checkRoutes(f *Facts) []Finding {
	var out []Finding
	if f.HookErr != nil {
		out = append(out, says(Fault, "the controller of routes cannot be asked").because("%v",
			f.HookErr).do("put the file right; it is read for each request, and no restart is needed"))
	}
	c := f.Daemon.Status.Controller
	if !f.Daemon.answers() || c == nil {
		return orOK(out, "no controller programs this network's routes: the backend is not route-hook, or weftd "+
			"does not run")
	}
	if c.Fault != "" {
		verdict, since := Warning, ""
		if c.Taken.IsZero() {
			verdict = Fault // nothing says that packets pass
		}
		if !c.Since.IsZero() {
			since = " for " + f.Now.Sub(c.Since).Round(time.Second).String()
		}
		out = append(out, says(verdict, "the controller of routes does not take this node's view%s",
			since).because("%s", c.Fault).do("look at the controller at %s; what it accepted before stays as it is",
			c.Controller))
	}
	if c.Refused > 0 {
		out = append(out, says(Fault, "the controller of routes refuses %d of %d routes", c.Refused,
			c.Accepted+c.Pending+c.Refused).because(
			"its reasons are in weft status, for this node, and in weft peers").do("weft peers"))
	}
	if c.Pending > 0 {
		out = append(out, says(Note, "%d routes are pending at the controller",
			c.Pending).because("it has not seen them in place yet").do(
			"wait a minute; then look at the controller at %s", c.Controller))
	}
	return orOK(out, "the controller at %s has all %d routes in place", c.Controller, c.Accepted)
}
