package doctor

import "testing"

// What the kernel shows of a table on a machine with two processors.
func TestNeighbourTable(t *testing.T) {
	const head = "entries  allocs   destroys hash_grows lookups  hits     res_failed rcv_probes_mcast " +
		"rcv_probes_ucast periodic_gc_runs forced_gc_runs unresolved_discards table_fulls\n"
	const text = head +
		"000003fe 00000010 00000005 00000001 00000002 00000001 00000003 00000000 00000000 00000004 00000000 " +
		"00000000 0000000a\n" +
		"000003fe 00000010 00000005 00000001 00000002 00000001 00000003 00000000 00000000 00000004 00000000 " +
		"00000000 00000002\n"
	var n Neighbours
	if !n.parse(text) || n.Entries != 1022 || n.Refused != 12 {
		t.Errorf("%+v", n)
	}
	for _, bad := range []string{"", head, "entries\n1\n", head + "xyz\n", head + "000003fe\n"} {
		if n := (Neighbours{}); n.parse(bad) {
			t.Errorf("%q is %+v", bad, n)
		}
	}
	for _, n := range readNeighbours(nil) { // this kernel's
		if n.Entries < 0 || n.Most < 0 {
			t.Errorf("%+v", n)
		}
	}
}
