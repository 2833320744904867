{{- /* The network config, as weftd reads it. */ -}}
{{- define "weft.netConf" -}}
{{- include "weft.check" . -}}
{{- $w := .Values.weft -}}
{{- $backend := dict "Type" $w.backend -}}
{{- if $w.backendPort }}{{ $_ := set $backend (ternary "ListenPort" "Port" (eq (include "weft.kind" .) "wireguard")) $w.backendPort }}{{ end -}}
{{- if $w.mtu }}{{ $_ := set $backend "MTU" $w.mtu }}{{ end -}}
{{- if ne (int $w.vni) 1 }}{{ $_ := set $backend "VNI" $w.vni }}{{ end -}}
{{- if $w.GBP }}{{ $_ := set $backend "GBP" true }}{{ end -}}
{{- if $w.directRouting }}{{ $_ := set $backend "DirectRouting" true }}{{ end -}}
{{- if $w.macPrefix }}{{ $_ := set $backend "MacPrefix" $w.macPrefix }}{{ end -}}
{{- if ne $w.userspace "auto" }}{{ $_ := set $backend "Userspace" $w.userspace }}{{ end -}}
{{- $conf := dict "EnableNFTables" $w.enableNFTables "Backend" (mergeOverwrite $backend (deepCopy $w.backendConfig)) -}}
{{- if .Values.podCidr }}{{ $_ := set $conf "Network" .Values.podCidr }}{{ else }}{{ $_ := set $conf "EnableIPv4" false }}{{ end -}}
{{- with .Values.podCidrv6 }}{{ $_ := set $conf "EnableIPv6" true }}{{ $_ := set $conf "IPv6Network" . }}{{ end -}}
{{- mergeOverwrite $conf (deepCopy $w.config) | toPrettyJson -}}
{{- end -}}

{{- /* The backend by its keys: auto with Encrypt has those of wireguard. Keys are found in any case. */ -}}
{{- define "weft.kind" -}}
{{- $kind := .Values.weft.backend -}}
{{- range $key, $_ := .Values.weft.backendConfig -}}
{{- if and (eq $kind "auto") (eq (lower $key) "encrypt") }}{{ $kind = "wireguard" }}{{ end -}}
{{- end -}}
{{- $kind -}}
{{- end -}}

{{- /* Refuses what no schema can: values that exclude each other, or have no meaning with the chosen backend. */ -}}
{{- define "weft.check" -}}
{{- $w := .Values.weft -}}
{{- $kind := include "weft.kind" . -}}
{{- $vxlan := list "vxlan" "auto" -}}
{{- $ported := list "vxlan" "auto" "udp" "wireguard" -}}
{{- $either := list "vxlan" "auto" "wireguard" "ipip" -}}
{{- if not (or .Values.podCidr .Values.podCidrv6) }}{{ fail "podCidr and podCidrv6 are both empty: a network needs one of them" }}{{ end -}}
{{- $faults := list -}}
{{- range list
      (list "backendPort" $w.backendPort $ported) (list "mtu" (and $w.mtu (eq $w.backend "alloc")) (list "vxlan" "auto" "udp" "wireguard" "ipip" "host-gw" "extension"))
      (list "vni" (ne (int $w.vni) 1) $vxlan) (list "GBP" $w.GBP $vxlan) (list "directRouting" $w.directRouting (list "vxlan" "ipip"))
      (list "macPrefix" $w.macPrefix $vxlan) (list "userspace" (ne $w.userspace "auto") $either) (list "userspaceDevices" $w.userspaceDevices (append $either "udp")) -}}
{{- if and (index . 1) (not (has $kind (index . 2))) -}}
{{- $faults = append $faults (printf "weft.%s is for the backend %s, and weft.backend is %s%s" (index . 0) (join ", " (index . 2)) $w.backend (ternary "" " with Encrypt" (eq $kind $w.backend))) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := dict "Type" "weft.backend" "Port" "weft.backendPort" "ListenPort" "weft.backendPort" "MTU" "weft.mtu" "VNI" "weft.vni" "GBP" "weft.GBP" "DirectRouting" "weft.directRouting" "MacPrefix" "weft.macPrefix" "Userspace" "weft.userspace" -}}
{{- if hasKey $w.backendConfig $key }}{{ $faults = append $faults (printf "weft.backendConfig.%s: set %s" $key $value) }}{{ end -}}
{{- end -}}
{{- range $key, $value := dict "Backend" "weft.backend and weft.backendConfig" "Network" "podCidr" "IPv6Network" "podCidrv6" "EnableIPv4" "podCidr" "EnableIPv6" "podCidrv6" "EnableNFTables" "weft.enableNFTables" -}}
{{- if hasKey $w.config $key }}{{ $faults = append $faults (printf "weft.config.%s: set %s" $key $value) }}{{ end -}}
{{- end -}}
{{- if and $w.podMonitor.enabled (or (hasPrefix "127." $w.healthz.ip) (eq $w.healthz.ip "::1")) -}}
{{- $faults = append $faults "weft.podMonitor needs weft.healthz.ip node, 0.0.0.0 or ::, which others than the node itself reach" -}}
{{- end -}}
{{- range $key, $_ := $w.podLabels -}}
{{- if eq $key "app.kubernetes.io/name" }}{{ $faults = append $faults "weft.podLabels: app.kubernetes.io/name is what the DaemonSet finds its pods by" }}{{ end -}}
{{- end -}}
{{- /* A namespace whose labels could not be taken over would not get the annotation that keeps it, and a rollback would delete it. */ -}}
{{- $labels := dig "metadata" "labels" dict (lookup "v1" "Namespace" "" .Release.Namespace) | default dict -}}
{{- range $mode := ternary (list "enforce" "audit" "warn") (list "enforce") .Values.namespace.manage -}}
{{- $level := get $labels (print "pod-security.kubernetes.io/" $mode) -}}
{{- if and $level (ne $level "privileged") -}}
{{- $faults = append $faults (printf "the namespace %s is for pods that are %s, and weft is on the host's network: kubectl label namespace %s --overwrite pod-security.kubernetes.io/%s=privileged" $.Release.Namespace $level $.Release.Namespace $mode) -}}
{{- end -}}
{{- end -}}
{{- if $faults }}{{ fail (printf "\n  %s" (join "\n  " $faults)) }}{{ end -}}
{{- end -}}
