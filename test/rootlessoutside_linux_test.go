package test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weft/test/await"
	"weft/test/lab"
	"weft/test/lab/session"
	"weft/test/netns"
	"weft/test/talk"
)

// Pods that are attached directly, and those on a bridge, reach what is outside by slirp4netns where it is in
// the namespace of the TUN. weft says where its way out is, by pasta as well, and where there is none; that a
// pod hears at once.
func TestRootlessOutside(t *testing.T) {
	parallel(t)
	netns.Programs(t, "newuidmap:uidmap", "pasta:passt", "rootlesskit", "slirp4netns")
	h := userHosts(t, 3, lab.WireFull)
	addr := h.Node(3).Underlay4 // no overlay has it
	u, bob := session.Ada(), session.Bob()
	h.talker(3, u, session.Options{}, "env")
	store := h.etcd(1, u, 2379, dualStackOn(8285))
	members := []*member{
		h.joinBy(1, u, store, []string{"rootlesskit", "--net=slirp4netns", "--disable-host-loopback",
			"--copy-up=/etc", "--state-dir=" + u.RuntimeDir() + "/rootlesskit"}, "--ip-masq"),
		h.joinBy(2, u, store, []string{"unshare", "-Urn"}, "--ip-masq"),
	}
	pasta := h.daemon(2, u, session.Options{}, "pasta", "pasta", "--foreground", "--config-net", "--no-map-gw",
		"--tcp-ports", "none", "--udp-ports", "none", "--tcp-ns", "none",
		"--udp-ns", "none", strconv.Itoa(members[1].PID))
	if err := pasta.Start(); err != nil {
		t.Fatal(err)
	}
	alone := h.join(1, bob, h.etcd(1, bob, 2389, dualStackOn(8286)))
	var all []*talk.Talker
	for _, m := range append(members, alone) {
		h.serving(m)
		k := h.talker(m.host, m.user, session.Options{}, "unshare", "-Urn")
		k.Name = "direct pod of " + m.Name
		h.attached(m.host, m.user, strconv.Itoa(k.PID), "direct")
		m.pods = append(m.pods, k)
	}
	h.addPods(members[0], 1)
	for _, m := range members {
		all = append(all, m.pods...)
	}
	allTalk(t, []int{4, 6}, all)
	for _, k := range members[0].pods {
		// pasta of Debian 12 sends what was said again where a direction is closed early, as a conversation does
		// (docs/rootless.md)
		to := talk.Target{Addr: addr, MTU: address(t, k, 4).MTU}
		if r, err := k.Ask(talk.Request{Talk: []talk.Target{to}}); err != nil || r.Talked != 3 {
			t.Errorf("%s to the outside: %+v, %v", k.Name, r, err)
		}
	}
	for i, want := range []string{"tap0", " by eth0"} {
		await.OK(t, "weft status says where that is", func() error {
			out, err := h.run(1+i, u, session.Options{}, "weft", "status")
			if err == nil && !strings.Contains(out, want) {
				err = fmt.Errorf("want %q in %s", want, out)
			}
			return err
		})
	}

	// Bob's lead nowhere, which is an answer, and not silence.
	nsenter := []string{"--user", "--net", "--preserve-credentials", "--target=" +
		strconv.Itoa(alone.pods[0].PID), "ping", "-n", "-c", "1", "-W", strconv.Itoa(int(await.Patience.Seconds())),
		addr.String()}
	if out, err := h.run(1, bob, session.Options{}, "nsenter", nsenter...); err == nil ||
		!strings.Contains(out, "Unreachable") {
		t.Errorf("without a way out: %v: %s", err, out)
	}
	if out, err := h.run(1, bob, session.Options{}, "weft", "status"); err != nil ||
		!strings.Contains(out, "elsewhere") {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := h.run(1, bob, session.Options{}, "weft", "doctor"); !strings.Contains(out, "nothing else") {
		t.Errorf("%v: %s", err, out)
	}
	h.unprivileged()
}
