package routecontrol

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"weft/test/await"
)

// forget has an operator remove a node.
func (c *cluster) forget(node string) {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodDelete, c.URL+"/v1/views/"+node, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		c.t.Errorf("DELETE of node %s: %s", node, resp.Status)
	}
}

// Where all views end together no route is removed, nor when the first node is heard again: until the others
// have had the time to.
func TestAllViewsEndTogether(t *testing.T) {
	c := newCluster(t)
	c.later(time.Hour)
	a, b := c.client("a"), c.client("b")
	c.give(a, "a", one)
	c.give(b, "b", two)
	c.expect(one, two)
	for range 2 {
		c.later(time.Hour)
		c.tick()
		c.expect(one, two)
	}
	if got := c.give(a, "a", one); got != "" {
		t.Error(got)
	}
	c.later(2 * time.Minute)
	c.tick()
	c.expect(one, two)
	c.later(2 * time.Minute)
	c.tick()
	c.expect(one) // b was not heard
	c.forget("a")
	c.tick()
	c.expect()
}

// What an operator removes is gone, before its view is over and after it; one of several that are not heard
// takes nothing else with it.
func TestRemovedNodesAreGone(t *testing.T) {
	c := newCluster(t)
	c.later(time.Hour)
	c.give(c.client("a"), "a", one)
	c.give(c.client("b"), "b", two)
	c.later(time.Hour)
	c.tick()
	c.expect(one, two)
	for _, node := range []string{"a", "stranger"} {
		c.forget(node)
		c.tick()
		c.later(time.Hour)
		c.tick()
		c.expect(one, two)
	}
	c.forget("b")
	c.later(time.Hour)
	c.tick()
	c.expect()
	if got := c.give(c.client("a"), "a", one); got != "" {
		t.Error(got)
	}
	c.expect(one)
}

// A controller that begins anew and hears nobody removes nothing, whatever the time.
func TestNobodyIsHeardByANewController(t *testing.T) {
	c := newCluster(t)
	c.give(c.client("a"), "a", one)
	c.begin()
	for range 2 {
		c.later(time.Hour)
		c.tick()
		c.expect(one)
	}
}

// A route that was in place is pending, and not refused, while a controller that began anew cannot look.
func TestANewControllerCannotLook(t *testing.T) {
	c := newCluster(t)
	a := c.client("a")
	c.give(a, "a", one)
	c.table.be(func(p *table) { p.fails = errors.New("dial tcp: i/o timeout") })
	c.begin()
	if got := c.give(a, "a", one); got != "10.5.1.0/24 pending" {
		t.Error(got)
	}
	c.table.be(func(p *table) { p.fails = nil })
	await.OK(t, "the cloud is back", func() error {
		if got := c.give(a, "a", one); got != "" {
			return errors.New(got)
		}
		return nil
	})
}
