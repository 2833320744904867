//go:build arm64 || riscv64 || loong64

package confine

// byName is renameat(2), all that these machines have, if that, of the calls from before renameat2(2): asm-generic/unistd.h.
func byName() []uint32 { return []uint32{38} }
