package main

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"weft/bench/overlay"
	"weft/bench/report"
	"weft/cmd/internal/events"
	"weft/cmd/internal/options"
	"weft/routing"
	"weft/test/lab"
	"weft/test/lab/holder"
)

// completer says what may stand at a place of the command line.
type completer = cobra.CompletionFunc

// completeAll gives every flag that takes a value, and every argument, what the shell shows for it. An
// argument that is no file completes to none.
func completeAll(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	values := flagValues()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		give := func(f *pflag.Flag) {
			value := values[f.Name]
			if named := values[c.Name()+" "+f.Name]; named != nil {
				value = named
			}
			if _, has := c.GetFlagCompletionFunc(f.Name); value != nil && !has && f.Value.Type() != "bool" {
				_ = c.RegisterFlagCompletionFunc(f.Name, value) // the flag is there
			}
		}
		c.LocalFlags().VisitAll(give)
		switch c.CommandPath() {
		case "weft lab exec":
			c.ValidArgsFunction = completeHost
		case "weft lab down":
			c.ValidArgsFunction = firstOnly(completeLabs)
		case "weft doctor":
			c.ValidArgsFunction = completeDaemonFlags
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	bashAlone(root)
}

// flagValues has what completes each flag, by its name, or by its command's and its name.
func flagValues() map[string]completer {
	files := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	dirs := cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	var rungs, measures, wires, attachments []string
	for _, r := range overlay.Rungs() {
		rungs = append(rungs, r.Name)
	}
	for _, k := range report.Kinds() {
		measures = append(measures, string(k))
	}
	for _, w := range lab.WireKinds() {
		wires = append(wires, w.String())
	}
	for _, a := range lab.Attachments() {
		attachments = append(attachments, a.String())
	}
	out := map[string]completer{
		"backend": words(append(labBackends(), lab.KernelHostGW.String(), lab.KernelVXLAN.String())...),
		"path":    words(routing.PathWords()...), "store": words("embedded", "separate", "external"),
		"wire": words(wires...), "attach": words(attachments...), "lab": completeLabs, "cache-dir": dirs,
		"reservations": dirs, "since": words("15m", "1h", "24h", "7d"), "kind": list(events.Kinds()),
		"bench wire": list(wires), "bench rungs": list(rungs), "bench measures": list(measures),
		"from": completeBenchHost, "routes": words("auto", "default", "network", "none"), "to": completeBenchHost,
	}
	for _, name := range []string{"output", "write", "json", "html", "markdown", "benchstat", "net-conf",
		"weftd", "subnet-file", "kubeconfig-file", "control-socket",
		"etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-password-file", "netns", "binary",
		"route-hook-token-file", "route-hook-cafile", "route-hook-certfile", "route-hook-keyfile"} {
		out[name] = files
	}
	return out
}

func words(l ...string) completer {
	return cobra.FixedCompletions(l, cobra.ShellCompDirectiveNoFileComp)
}

// list completes the last word of several with commas between them, and none twice.
func list(l []string) completer {
	return func(_ *cobra.Command, _ []string, typed string) (out []string, _ cobra.ShellCompDirective) {
		before := typed[:strings.LastIndexByte(typed, ',')+1]
		for _, w := range l {
			if !strings.Contains(","+before, ","+w+",") {
				out = append(out, before+w)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
}

// firstOnly completes the first argument as c does, and no other.
func firstOnly(c completer) completer {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c(cmd, args, typed)
	}
}

func completeLabs(*cobra.Command, []string, string) (out []string, _ cobra.ShellCompDirective) {
	labs, _ := holder.List() // without labs there is nothing to complete
	for _, l := range labs {
		out = append(out, l.Name)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// hosts are the nodes and pods of the lab that the flags of cmd name.
func hosts(cmd *cobra.Command) (out []string) {
	name, err := cmd.Flags().GetString("lab")
	labs, errList := holder.List()
	if err != nil || errList != nil {
		return nil
	}
	for _, l := range labs {
		if l.Name != name || l.Info == nil {
			continue
		}
		for _, n := range l.Info.Nodes {
			out = append(out, n.Name)
			for _, p := range n.Pods {
				out = append(out, p.Name)
			}
		}
	}
	return out
}

// completeHost is for weft lab exec: behind the host stands a command, of which the shell knows the files.
func completeHost(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return hosts(cmd), cobra.ShellCompDirectiveNoFileComp
}

func completeBenchHost(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	return hosts(cmd), cobra.ShellCompDirectiveNoFileComp
}

// completeDaemonFlags lists weftd's flags, which stand behind --.
func completeDaemonFlags(_ *cobra.Command, _ []string, typed string) (out []string,
	_ cobra.ShellCompDirective) {
	if !strings.HasPrefix(typed, "-") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	cfg, _ := options.Parse(nil, nil) // for the names of the flags
	for _, s := range cfg.Settings {
		out = append(out, "--"+s.Name+"=")
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// withoutBashCompletion goes before cobra's script for bash, which calls two functions of the package
// bash-completion. Where that is not installed, as on most servers, these take their place.
const withoutBashCompletion = `# bash completion of weft. The package bash-completion is not needed.
if ! declare -F _get_comp_words_by_ref >/dev/null; then
	_get_comp_words_by_ref() {
		local typed=${COMP_LINE:0:COMP_POINT}
		read -ra words <<<"$typed"
		if [[ $typed == *[[:space:]] ]]; then words+=(""); fi
		cword=$((${#words[@]} - 1))
		cur=${words[cword]} prev=${words[cword > 0 ? cword - 1 : 0]}
	}
fi
if ! declare -F __ltrim_colon_completions >/dev/null; then
	__ltrim_colon_completions() {
		local typed=$1 n i
		if [[ $COMP_WORDBREAKS != *:* || $typed != *:* ]]; then return; fi
		n=${typed##*:}
		n=$((${#typed} - ${#n}))
		for i in "${!COMPREPLY[@]}"; do COMPREPLY[i]=${COMPREPLY[i]:n}; done
	}
fi

`

// bashAlone makes the script of weft completion bash work alone.
func bashAlone(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion", "bash"})
	if err != nil || cmd.RunE == nil {
		return
	}
	print := cmd.RunE
	cmd.RunE = func(c *cobra.Command, args []string) error {
		if _, err := io.WriteString(c.OutOrStdout(), withoutBashCompletion); err != nil {
			return err
		}
		return print(c, args)
	}
	cmd.Long = "Generate the autocompletion script for the bash shell.\n\nTo have it in this shell, and in " +
		"each new one:\n\n" +
		"  source <(weft completion bash)\n  weft completion bash > /etc/bash_completion.d/weft\n\n" +
		"The second needs the package bash-completion, which reads that directory; without it, put the first " +
		"into ~/.bashrc."
}
