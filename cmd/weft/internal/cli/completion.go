package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Completer says what may stand at a place of the command line.
type Completer = cobra.CompletionFunc

// completeAll completes to files what takes the name of one, and the arguments of all commands to nothing
// unless they say otherwise.
func completeAll(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	values := map[string]Completer{}
	for _, name := range []string{"cache-dir", "reservations"} {
		values[name] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	}
	for _, name := range []string{"output", "write", "json", "html", "markdown", "benchstat", "net-conf",
		"weftd", "subnet-file", "kubeconfig-file", "control-socket",
		"etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-password-file", "netns", "binary",
		"route-hook-token-file", "route-hook-cafile", "route-hook-certfile", "route-hook-keyfile"} {
		values[name] = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		CompleteFlags(c, values)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	bashAlone(root)
}

// CompleteFlags has those flags of cmd completed that it has among values and that have nothing yet.
func CompleteFlags(cmd *cobra.Command, values map[string]Completer) {
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		_, has := cmd.GetFlagCompletionFunc(f.Name)
		if value := values[f.Name]; value != nil && !has && f.Value.Type() != "bool" {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, value) // the flag is there
		}
	})
}

func OneOf(l ...string) Completer {
	return cobra.FixedCompletions(l, cobra.ShellCompDirectiveNoFileComp)
}

// ManyOf completes the last word of several with commas between them, and none twice.
func ManyOf(l []string) Completer {
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
