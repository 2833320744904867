// Package remote measures between two machines, or two pods of a cluster. There is a server at one
// end and a client at the other, and both use the generators of package load.
//
// The client opens a TCP connection for control. Data go over further TCP connections to
// the same port, and over UDP to the same port number, so that a firewall or a network policy has
// to let in only one. Addresses of both families work. To an overlay between them all this is
// ordinary traffic between two pods.
//
//	server: {"weft_bench":1,"nonce":"…"}               on every connection
//	client: {"weft_bench":1,"proof":"…"}               control; proof is HMAC-SHA256(token, nonce)
//	server: {"session":"…","machine":{…}}              or {"error":"busy: …"}
//	client: {"op":"expect","tag":7}                    one request a line, one reply a line
//	server: {"count":0}
//	client: {"weft_bench":1,"session":"…","role":"sink"}   on a connection for data
//
// Either end takes the other for hostile. A line longer than 4 KiB is an error, connections that say
// nothing are closed, and only one session runs at a time, which ends when its client goes away or says
// nothing for half a minute. The server sends datagrams only in a session that asks for
// them, and only to the address from which the control connection comes, since TCP has shown that the
// client is there; rate, duration and size are limited. The token keeps others from using the server. It
// does not hide the traffic, which is nothing but zeroes.
package remote
