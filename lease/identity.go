package lease

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"weft/lease/atomicfile"
)

// NodeFile is where the identity is, in the state directory.
const NodeFile = "node-id"

// machineID is where systemd and D-Bus keep the machine's identity.
const machineID = "/etc/machine-id"

// IdentitySource is the origin of a node's identity.
type IdentitySource uint8

// The sources, in the order in which they are tried.
const (
	_ IdentitySource = iota
	// IdentityGiven: the operator named it.
	IdentityGiven
	// IdentityStored: it was in the cache directory.
	IdentityStored
	// IdentityMachine: it was derived from the machine's id, and stored.
	IdentityMachine
	// IdentityRandom: there is no machine id, as in most containers; it was drawn, and
	// stored. It lasts as long as the cache directory.
	IdentityRandom
)

func (s IdentitySource) String() string {
	switch s {
	case IdentityGiven:
		return "given"
	case IdentityStored:
		return "stored"
	case IdentityMachine:
		return "machine-id"
	case IdentityRandom:
		return "random"
	}
	return "invalid"
}

// IdentityOptions says where to look for the node's identity.
type IdentityOptions struct {
	// Given is the operator's choice; it wins and is not stored. "" if there is none.
	Given string
	// CacheDir holds the stored identity. It is made if it is missing.
	CacheDir string
	// Part names what the identity is of, if that is only a part of the machine: two parts have two identities.
	// "" is the machine.
	Part string
	// MachineID is the file to derive an identity from; "" means /etc/machine-id.
	MachineID string
}

// ErrNotStored is wrapped by an error of LoadIdentity that comes with an identity. The identity is valid for
// this run; the next run derives or draws its own.
var ErrNotStored = errors.New("the node id is not stored")

// LoadIdentity returns the node's identity, which stays the same across restarts and changes of address. It
// stores an identity that it derives from the machine's id, so that a new machine id does not make a new
// node. If it cannot store it, the error wraps ErrNotStored, and the returned identity is valid all the same.
func LoadIdentity(o IdentityOptions) (string, IdentitySource, error) {
	if o.Given != "" {
		if !ValidNode(o.Given) {
			return "", 0, fmt.Errorf("node id %q: want 1 to %d letters, digits, dots, dashes or underscores",
				o.Given, maxNode)
		}
		return o.Given, IdentityGiven, nil
	}
	path := filepath.Join(o.CacheDir, NodeFile)
	stored, err := os.ReadFile(path)
	switch id := string(bytes.TrimSpace(stored)); {
	case err == nil && ValidNode(id):
		return id, IdentityStored, nil
	case err == nil:
		return "", 0, fmt.Errorf("%s holds no node id: delete it to derive one again, or name one with --node-id",
			path)
	case !errors.Is(err, fs.ErrNotExist):
		return "", 0, fmt.Errorf("read node id: %w", err)
	}
	source := IdentityMachine
	id, err := deriveIdentity(o.MachineID, o.Part)
	if errors.Is(err, fs.ErrNotExist) {
		source, err = IdentityRandom, nil
		id = NewIdentity()
	}
	if err != nil {
		return "", 0, err
	}
	if err := atomicfile.Write(path, []byte(id+"\n")); err != nil {
		return id, source, fmt.Errorf("%w: %w", ErrNotStored, err)
	}
	return id, source, nil
}

// NewIdentity is 128 bits that nobody else has.
func NewIdentity() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand)
	return hex.EncodeToString(b[:])
}

// deriveIdentity hashes the machine's id, which machine-id(5) asks to keep
// secret: it is the key of the hash.
func deriveIdentity(path, part string) (string, error) {
	if path == "" {
		path = machineID
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("derive node id (name one with --node-id): %w", err)
	}
	id := bytes.TrimSpace(b)
	if raw, err := hex.DecodeString(string(id)); err != nil || len(raw) != 16 {
		return "", fmt.Errorf("derive node id: %s holds no machine id: name a node id with --node-id", path)
	}
	h := hmac.New(sha256.New, id)
	h.Write([]byte("weft node identity 1"))
	if part != "" {
		h.Write([]byte("\x00" + part))
	}
	return hex.EncodeToString(h.Sum(nil)[:16]), nil
}

// maxNode is the longest identity, in bytes: what the name of a Node of Kubernetes may hold.
const maxNode = 253

func ValidNode(id string) bool {
	if len(id) == 0 || len(id) > maxNode {
		return false
	}
	for _, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '-', c == '_':
		default:
			return false
		}
	}
	return true
}
