// Package remote measures between two machines, or two pods of a cluster: a server at one
// end, a client at the other, the generators of package load at both.
//
// The client opens a TCP connection for control. Data go over further TCP connections to
// the same port, and over UDP to the same port number: one port is all that a firewall or a
// network policy has to let in. Addresses of both families work; the overlay sees ordinary
// traffic between two pods.
//
//	server: {"weft_bench":1,"nonce":"…"}               on every connection
//	client: {"weft_bench":1,"proof":"…"}               control; proof is HMAC-SHA256(token, nonce)
//	server: {"session":"…","machine":{…}}              or {"error":"busy: …"}
//	client: {"op":"expect","tag":7}                    one request a line, one reply a line
//	server: {"count":0}
//	client: {"weft_bench":1,"session":"…","role":"sink"}   on a connection for data
//
// What comes from the other end is hostile: a line ends at 4 KiB, connections that say
// nothing are closed, one session runs at a time and ends when its client goes away or says
// nothing for half a minute. The server sends datagrams only in a session that asks for
// them, and only to the address that the control connection comes from (TCP has shown that
// it is there); rate, duration and size are limited. The token keeps others from using the server; it does not hide the
// traffic, which is nothing but zeroes.
package remote
