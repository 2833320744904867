// Command controlplane is every program of a Kubernetes control plane that the tests run, kube-proxy, kubectl
// and helm, in one. The name by which it is called says which of them it is. To link one program instead of
// five saves some ten minutes of a cold build on two cores, and 600 MB of disk. The API server's version
// is set by the linker (Makefile).
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the request metrics of their client
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

func main() {
	programs := map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
		"kube-controller-manager": func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
		"kube-proxy":              func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
		"kubectl":                 runKubectl,
		"helm":                    runHelm,
	}
	run, ok := programs[filepath.Base(os.Args[0])]
	if !ok {
		var names []string
		for name := range programs {
			names = append(names, name)
		}
		slices.Sort(names)
		fmt.Fprintf(os.Stderr, "controlplane: call it by a link of one of these names: %s\n",
			strings.Join(names, ", "))
		os.Exit(2)
	}
	run()
}

func runKubectl() {
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // prints it as kubectl does, and exits
	}
}

func runHelm() {
	root, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = root.Execute()
	}
	if err != nil {
		os.Exit(1) // the program has said why
	}
}
