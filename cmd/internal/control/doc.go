// Package control has the protocol between the command weft and a running weftd, with its client and its
// server: JSON over HTTP on a Unix socket that only root, or the user that weftd runs as, may open.
//
//	GET  /v1/status           Status
//	GET  /v1/peers            Peers
//	GET  /v1/leases           Leases
//	POST /v1/leases/release   ReleaseRequest → Released
//	POST /v1/ask              AskRequest → Asked
//	POST /v1/matrix           nothing → Matrix
//	POST /v1/capture          CaptureRequest → a stream of Captured, as encoding/gob has it
//	POST /v1/reload           nothing → Reloaded
//	POST /v1/rotate-key       nothing → Rotated
//	GET  /v1/pods             podport.Pods; /v1/pods/attach and /v1/pods/detach are described in package podport
//
// A request that fails is answered with an Error. Fields are only ever added
// within /v1, so scripts may rely on them.
package control
