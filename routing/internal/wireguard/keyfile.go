package wireguard

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"weft/lease/atomicfile"
)

// keyMode is what the key's file is made with. flannel's has 0400, which is as good.
const keyMode = 0o600

// ErrKeyFile is what all errors about the content and the rights of a key's file wrap.
var ErrKeyFile = errors.New("the private key of WireGuard is not usable")

// LoadKey reads the private key in file, and makes one if there is none: then made says so. A file that
// others can read, that is another user's or that has no key in it is refused, and left as it is.
func LoadKey(file string) (key Secret, made bool, err error) {
	key, err = readKey(file)
	if !errors.Is(err, fs.ErrNotExist) {
		return key, false, err
	}
	key = NewPrivateKey()
	return key, true, StoreKey(file, key)
}

func readKey(file string) (Secret, error) {
	f, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe does not make us wait
	if err != nil {
		return Secret{}, fmt.Errorf("open the private key of WireGuard: %w", err)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return Secret{}, err
	}
	if why := unsafeFile(info); why != "" {
		return Secret{}, fmt.Errorf("%w: %s %s", ErrKeyFile, file, why)
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return Secret{}, fmt.Errorf("read the private key of WireGuard: %w", err)
	}
	key, err := ParseSecret(strings.TrimSpace(string(b)))
	if err != nil {
		return Secret{}, fmt.Errorf("%w: %s: %w; put the key back from a backup, or delete the file: "+
			"then this node makes a new key, and its peers learn it from its record",
			ErrKeyFile, file, err)
	}
	return key, nil
}

// unsafeFile says why nobody should trust what is in the file; "" if that is all right.
func unsafeFile(info fs.FileInfo) string {
	if !info.Mode().IsRegular() {
		return "is no regular file: name the file itself"
	}
	if open := info.Mode().Perm() & 0o077; open != 0 {
		return fmt.Sprintf("has mode %04o, so that others than its owner can get at the key, or did already: "+
			"delete it, and this node makes a new one; chmod 600 it only if nobody else was ever on this host",
			info.Mode().Perm())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return fmt.Sprintf("belongs to user %d, who knows the key: delete it, and this node makes a new one",
			st.Uid)
	}
	return ""
}

// StoreKey writes the key to file, in place of the one that is there, so that at any moment there is a whole
// one. If file is a link, it stays, and the file that it leads to is written.
func StoreKey(file string, key Secret) error {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	err := atomicfile.WriteFunc(file, keyMode, 0o755, func(w io.Writer) error {
		_, err := io.WriteString(w, key.open().String()+"\n")
		return err
	})
	if err != nil {
		return fmt.Errorf("store the private key of WireGuard: %w", err)
	}
	return nil
}
