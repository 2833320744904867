package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"weft/cmd/internal/podport"
	"weft/lease/atomicfile"
)

// saved is what the file has.
type saved struct {
	SchemaVersion int        `json:"schema_version"`
	Boot          string     `json:"boot,omitempty"`
	Pods          []savedPod `json:"pods"`
	// Owed are pods that are gone, whose addresses are not free yet.
	Owed []podport.Request `json:"owed,omitempty"`
}

type savedPod struct {
	podport.Request
	Since   time.Time `json:"since"`
	Visible bool      `json:"visible,omitempty"`
	Inode   uint64    `json:"inode,omitempty"`
}

// maxFile bounds the file, in bytes.
const maxFile = 16 << 20

// save writes the file if it is not what it has to be.
func (s *Set) save() {
	if s.o.File == "" {
		return
	}
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	if !s.dirty {
		s.mu.Unlock()
		return
	}
	out := saved{SchemaVersion: 1, Boot: s.o.Boot, Pods: make([]savedPod, 0, len(s.pods))}
	for _, p := range s.pods {
		out.Pods = append(out.Pods, savedPod{p.Request, p.since, p.visible, p.inode})
	}
	out.Owed = slices.Clone(s.owed)
	s.dirty = false
	s.mu.Unlock()
	slices.SortFunc(out.Pods, func(a, b savedPod) int { return a.Key.Compare(b.Key) })
	b, err := json.Marshal(out)
	if err == nil {
		err = atomicfile.Write(s.o.File, append(b, '\n'))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.dirty = true // as on a full disk, where there may be room later
		if !s.unsaved {
			s.o.Logger.Warn("pods are not saved: after a restart weftd cannot say which of them are missing. It is "+
				"tried again each half minute", "reason", err)
		}
	} else if s.unsaved {
		s.o.Logger.Info("pods are saved again", "file", s.o.File)
	}
	s.unsaved = err != nil
}

// recall takes up what an earlier run left: with a descriptor what the keeper has, and as missing what only
// the file has. Pods of another run of the kernel, and those whose namespaces are gone for certain, are
// forgotten, and their addresses freed.
func (s *Set) recall() {
	var kept []Kept
	if s.o.Keeper != nil {
		var err error
		if kept, err = s.o.Keeper.Kept(); err != nil {
			s.o.Logger.Warn("pods' descriptors that were kept cannot be had: the pods have to be attached again",
				"reason", err)
		}
	}
	old, err := read(s.o.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.o.Logger.Warn("which pods there were is not known", "file", s.o.File, "reason", err)
	}
	for _, r := range old.Owed {
		if r.Check() == nil {
			s.free(&pod{Request: r})
		}
	}
	rebooted := old.Boot != s.o.Boot && old.Boot != "" && s.o.Boot != ""
	for _, o := range old.Pods {
		if o.Request.Check() != nil {
			continue
		}
		p := newPod(o.Request, nil)
		p.state = podport.Missing
		if i := slices.IndexFunc(kept, func(k Kept) bool { return k.Request.Key == o.Key }); i >= 0 {
			p = newPod(kept[i].Request, kept[i].FDs)
			p.state = podport.Waiting
			kept = slices.Delete(kept, i, i+1)
		}
		p.since, p.visible, p.inode = o.Since, o.Visible, o.Inode
		if p.tun < 0 && (rebooted || p.ended()) || p.tun >= 0 && gone(p.tun) {
			s.dirty = true
			s.forgetKept(p)
			s.free(p)
			continue
		}
		s.pods[p.Key] = p
	}
	for _, k := range kept { // weftd ended before it wrote the file
		p := newPod(k.Request, k.FDs)
		p.state, p.since = podport.Waiting, time.Now()
		if s.dirty = true; k.Request.Check() != nil || gone(p.tun) {
			s.forgetKept(p)
			s.free(p)
			continue
		}
		s.pods[p.Key] = p
	}
	missing := 0
	for _, p := range s.pods {
		if p.state == podport.Missing {
			missing++
		}
	}
	if n := len(s.pods); n > 0 {
		s.o.Logger.Info("pods of the run before", "with_descriptor", n-missing, "missing", missing)
	}
}

// forgetKept closes the descriptors of a pod that is gone, and has the keeper forget it.
func (s *Set) forgetKept(p *pod) {
	if p.tun < 0 {
		return
	}
	p.close()
	if err := s.o.Keeper.Forget(p.Key); err != nil {
		s.o.Logger.Debug("the keeper did not forget a pod", "pod", p.Key.String(), "reason", err)
	}
}

func read(path string) (s saved, err error) {
	if path == "" {
		return s, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if info.Size() > maxFile {
		return s, errors.New("it is too large to be ours")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// look notes whether the namespace is visible here under the name that people are shown. Only then does the
// name say later that it is gone.
func (p *pod) look() {
	p.visible = false
	if !filepath.IsAbs(p.Netns) {
		return
	}
	if info, err := os.Stat(p.Netns); err == nil {
		st, ok := info.Sys().(*syscall.Stat_t)
		if ok && p.By == podport.ByWeft && strings.HasPrefix(p.Netns, "/proc/") {
			// a process of that number may be another one here
			ok = p.ID == fmt.Sprintf("netns-%d", st.Ino)
		}
		if ok {
			p.visible, p.inode = true, st.Ino
		}
	}
}

// ended reports whether the pod's namespace is gone for certain.
func (p *pod) ended() bool {
	if !p.visible {
		return false
	}
	info, err := os.Stat(p.Netns)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Ino != p.inode
}
