// Package pods has the pods that are attached directly to this node: their descriptors, and the ports that
// the data plane has for them.
//
// A pod is longer than a data plane: with another network configuration there is another one, and the pods
// get their ports anew. So the Set has each descriptor itself, and a data plane a duplicate. A pod ends in
// one of three ways: it is detached; its device is gone, with its namespace, which the data plane notices
// when it reads; or it is not there any more when weftd starts again. In each case its addresses are freed,
// if weftd was told where they are reserved.
//
// Which pods there are is on disk too, so that after a restart people can be told which of them have to be
// attached again. A Keeper has the descriptors themselves while weftd is away.
package pods
