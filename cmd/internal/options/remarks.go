package options

import "fmt"

// Remarks lists what is allowed and perhaps not meant, for the log and for --check.
func (c Config) Remarks() []string {
	var out []string
	for _, s := range c.Settings {
		if s.Name == "etcd-password" && s.Source == "flag" {
			out = append(out, "--etcd-password on the command line can be read by everyone on this host: use --etcd-password-file")
		}
	}
	if c.Embedded.On && c.Embedded.Insecure && !c.Embedded.Listen.Addr().IsLoopback() && c.Store.CertFile == "" {
		out = append(out, fmt.Sprintf("--embedded-etcd-insecure: whoever reaches %s can take any subnet", c.Embedded.Listen))
	}
	out = append(out, c.kubeRemarks()...)
	for _, name := range c.Unknown {
		out = append(out, fmt.Sprintf("environment variable %s names no flag: it is ignored", name))
	}
	return out
}
