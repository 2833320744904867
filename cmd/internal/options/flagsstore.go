package options

func etcdFlags(c *Config) section {
	return section{"The store: etcd", []row{
		{name: "etcd-endpoints", effect: Live, bind: value(urlsValue{listValue{&c.Store.Endpoints}}),
			usage: "comma-separated `URLs` of etcd"},
		{name: "etcd-prefix", effect: Restart, bind: text(&c.Store.Prefix),
			usage: "root of all `keys` in etcd"},
		{name: "etcd-cafile", effect: Live, bind: text(&c.Store.CAFile),
			usage: "PEM `file` with the authorities that etcd's certificate is checked against"},
		{name: "etcd-certfile", effect: Live, bind: text(&c.Store.CertFile),
			usage: "PEM `file` with our certificate for etcd"},
		{name: "etcd-keyfile", effect: Live, bind: text(&c.Store.KeyFile),
			usage: "PEM `file` with our private key for etcd"},
		{name: "etcd-username", effect: Live, bind: text(&c.Store.Username),
			usage: "`user` in etcd"},
		{name: "etcd-password-file", own: true, effect: Live, bind: text(&c.Store.PasswordFile),
			usage: "`file` whose first line is the password of --etcd-username"},
		{name: "etcd-password", effect: Live, bind: value(secretValue{&c.Store.Password}),
			usage: "the user's `password`; anyone on this host can read it on the command line, so " +
				"prefer --etcd-password-file"},
	}}
}

func embeddedFlags(c *Config) section {
	return section{"The store: an etcd that weftd runs itself, for a lab or a first node", []row{
		{name: "embedded-etcd", own: true, effect: Restart, bind: boolean(&c.Embedded.On),
			usage: "run an etcd server, which ends when this daemon does"},
		{name: "embedded-etcd-dir", own: true, effect: Restart, bind: text(&c.Embedded.Dir),
			usage: "`directory` of the embedded etcd's data"},
		{name: "embedded-etcd-listen", own: true, effect: Restart, bind: addrPort(&c.Embedded.Listen),
			usage: "`address:port` where the embedded etcd serves clients; empty is the Unix socket " +
				"client/etcd.sock in --embedded-etcd-dir, which only root can use. On loopback any local " +
				"user can write the store; other than loopback it needs TLS or --embedded-etcd-insecure"},
		{name: "embedded-etcd-insecure", own: true, effect: Restart, bind: boolean(&c.Embedded.Insecure),
			usage: "let anyone who reaches the embedded etcd read and write it"},
	}}
}

func kubeFlags(c *Config) section {
	return section{"The store: Kubernetes. weftd runs as a DaemonSet there, which sets these by arguments",
		[]row{
			{name: "kube-subnet-mgr", effect: Restart, bind: boolean(&c.Kube.On),
				usage: "take subnets from the Kubernetes API (the podCIDRs of nodes) instead of etcd; the " +
					"own node is that of NODE_NAME, else of the pod that POD_NAMESPACE and POD_NAME name"},
			{name: "kube-api-url", effect: Live, bind: value(urlValue{&c.Kube.APIURL}),
				usage: "`URL` of the Kubernetes API; with neither this nor --kubeconfig-file it is found as " +
					"pods find it"},
			{name: "kubeconfig-file", effect: Live, bind: text(&c.Kube.Kubeconfig),
				usage: "kubeconfig `file` that says how the Kubernetes API is reached, and who we are there"},
			{name: "kube-annotation-prefix", effect: Restart, bind: text(&c.Kube.AnnotationPrefix),
				usage: "`prefix` of the annotations on nodes: a domain, perhaps with a slash and the " +
					"beginning of the name"},
			{name: "set-node-network-unavailable", effect: Restart, bind: boolean(&c.Kube.SetNodeNetworkUnavailable),
				usage: "set the node's condition NetworkUnavailable: false once packets can flow, true when " +
					"they cannot for long"},
		}}
}
