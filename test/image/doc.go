// Package image runs programs as in a container of one of weft's images.
// Tests so need no container engine and no registry.
package image
