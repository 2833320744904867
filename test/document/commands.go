// Package document reads the project's documents, so that tests can hold what they tell people to type
// against the programs.
package document

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Command is a command line in a document.
type Command struct {
	// Where is the document and the line in it, such as docs/faq.md:12.
	Where string
	// Args are the words after the program's name.
	Args []string
	// Whole says that it stands in a block of code, so that no argument was left out for brevity.
	Whole bool
}

// Commands returns the command lines of program in README.md, CONTRIBUTING.md and docs below root: those in
// blocks of code, and those in backquotes that have no signs of an abbreviation.
func Commands(root, program string) ([]Command, error) {
	files := []string{filepath.Join(root, "README.md"), filepath.Join(root, "CONTRIBUTING.md")}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(p string, _ fs.DirEntry, err error) error {
		if filepath.Ext(p) == ".md" {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []Command
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return nil, err
		}
		out = append(out, commands(name, string(b), program)...)
	}
	return out, nil
}

// commands returns those in the text of the document that is called name.
func commands(name, text, program string) (out []Command) {
	quoted := regexp.MustCompile("`([^`\n]+)`")
	block, carried := false, ""
	for i, line := range strings.Split(text, "\n") {
		where := fmt.Sprintf("%s:%d", name, i+1)
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			block, carried = !block, ""
			continue
		}
		if !block {
			for _, m := range quoted.FindAllStringSubmatch(line, -1) {
				if args, ok := arguments(m[1], program); ok && !strings.ContainsAny(m[1], "|…[]<>{}\"'") {
					out = append(out, Command{where, args, false})
				}
			}
			continue
		}
		line, carried = carried+line, ""
		if rest, more := strings.CutSuffix(line, `\`); more {
			carried = rest
			continue
		}
		line, _, _ = strings.Cut(line, " #")
		// what a command prints stands for a word, a number perhaps
		line = regexp.MustCompile(`"?\$\(`).ReplaceAllLiteralString(line, "1 && ")
		for _, part := range regexp.MustCompile(`&&|;|\| `).Split(line, -1) {
			_, inner, _ := strings.Cut(part, " -- ") // what another command, or weft lab exec, is to run
			for _, text := range []string{part, inner} {
				if args, ok := arguments(text, program); ok && !strings.Contains(text, "…") {
					out = append(out, Command{where, args, true})
				}
			}
		}
	}
	return out
}

// arguments returns the words after the program's name if text is a command line of it, perhaps with sudo,
// with a folder, or with variables before.
func arguments(text, program string) ([]string, bool) {
	words := regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`).FindAllString(text, -1)
	for len(words) > 0 && (words[0] == "sudo" || regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0])) {
		words = words[1:]
	}
	if len(words) == 0 || filepath.Base(words[0]) != program || strings.HasPrefix(words[0], "/") {
		return nil, false
	}
	if len(words) == 1 || strings.HasPrefix(words[1], "v0.") || words[1] == "is" {
		// the program's name, and what it says
		return nil, false
	}
	for i, w := range words {
		words[i] = strings.Trim(w, `'"`)
	}
	return words[1:], true
}
