package daemon

import (
	"context"
	"fmt"
	"os"
	"strings"

	"weft/cmd/internal/control"
	"weft/cmd/weftd/internal/cipher"
	"weft/routing"
)

// cipherItem begins the names by which the lines to processes that encrypt are kept. Such a process lives as long as its line is kept.
const cipherItem = "wireguard "

// openCiphers takes up the processes that the last weftd left, or that the one before has.
func (d *Daemon) openCiphers() {
	items, _ := d.custody.Kept(cipherItem)
	lines := make(map[string]routing.WireGuardLine, len(items))
	for _, i := range items {
		line := routing.WireGuardLine{FD: i.FDs[0], Process: -1} // an item has one at least
		if len(i.FDs) > 1 {
			line.Process = i.FDs[1]
		}
		lines[strings.TrimPrefix(i.Name, cipherItem)] = line
	}
	log := d.log.With("component", "wireguard")
	d.ciphers = routing.NewWireGuardProcesses(routing.WireGuardProcessOptions{
		Start: func(name string, line, tun *os.File) (int, error) { return cipher.Start(log, name, line, tun) }, Keep: d.keepCipher, Forget: func(name string) { d.custody.Forget(cipherItem + name) },
		Kept: lines, Settled: func() bool { return true }, Version: d.version, Logger: log,
	})
}

// keepCipher has custody keep the line to a process.
func (d *Daemon) keepCipher(name string, line routing.WireGuardLine) {
	fds := []int{line.FD}
	if line.Process >= 0 {
		fds = append(fds, line.Process)
	}
	if err := d.custody.Offer(d.running, cipherItem+name, nil, fds); err != nil {
		d.log.Warn("a restart of weftd will end the sessions with all peers: the process that encrypts is not kept", "device", name, "reason", err)
	}
}

// UpgradeEncryption implements control.KeyService. While another weftd takes this one's place it is refused: that one has the processes too.
func (d *Daemon) UpgradeEncryption(ctx context.Context) (control.EncryptionUpgraded, error) {
	done, err := d.mayChange()
	if err != nil {
		return control.EncryptionUpgraded{}, err
	}
	defer done()
	g, waiting := d.current()
	if g == nil {
		return control.EncryptionUpgraded{}, fmt.Errorf("%w: there is no backend yet: %s", control.ErrRefused, waiting)
	}
	e, ok := g.backend.(*routing.Encrypter)
	if !ok || len(g.backend.Status().Processes) == 0 {
		return control.EncryptionUpgraded{}, fmt.Errorf("%w: no process encrypts: only type wireguard in user space has one (weft status)", control.ErrRefused)
	}
	before, after, err := e.ReplaceProcesses(ctx)
	if err != nil {
		return control.EncryptionUpgraded{}, err
	}
	d.log.Info("the processes that encrypt are new ones, and sessions begin anew", "version", d.version)
	return control.EncryptionUpgraded{Before: processes(before), Processes: processes(after)}, nil
}

func processes(all []routing.WireGuardProcess) (out []control.Process) {
	for _, p := range all {
		out = append(out, control.Process(p))
	}
	return out
}

// closeCiphers leaves the processes to the next weftd, if somebody keeps them.
func (d *Daemon) closeCiphers() {
	if d.ciphers != nil {
		d.ciphers.Close()
	}
}
