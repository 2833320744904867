// Package pcapfilter has a filter of packets in the well-known part of pcap's language (pcap-filter(7)),
// compiled to classic BPF, which golang.org/x/net/bpf runs in this process and a packet socket in the kernel:
//
//	filter    = term { ("and" | "or" | "&&" | "||") term }
//	term      = ("not" | "!") term | "(" filter ")" | primitive
//	primitive = [ip|ip6|tcp|udp|sctp] [src|dst|src or dst|src and dst] (host ADDR | net CIDR | port N | portrange N-M)
//	          | ip | ip6 | tcp | udp | sctp | icmp | icmp6
//	          | [ip|ip6] proto N | less BYTES | greater BYTES
//
// As with pcap, "and" and "or" bind alike, from left to right; an address, network or port alone takes over
// the words before the last one (port 80 or 443); host and net without src or dst mean either; the ports are
// those of TCP, UDP and SCTP, and of IPv6 extension headers only a fragment header is followed, and that for
// protocols only. A packet that ends before a field that is asked for does not match, whatever stands before
// it. Anything else, such as names of hosts and tcp[13], is an error that says so.
//
// A packet begins with its IP header.
package pcapfilter
