{{- /* Names that several files use. */ -}}
{{- define "weft.labels" -}}
app.kubernetes.io/name: weft
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "weft.image" -}}
{{- with .Values.weft.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- /* The network config, as weftd reads it. */ -}}
{{- define "weft.netConf" -}}
{{- $w := .Values.weft -}}
{{- $backend := dict "Type" $w.backend -}}
{{- if $w.backendPort }}{{ $_ := set $backend "Port" $w.backendPort }}{{ end -}}
{{- if $w.mtu }}{{ $_ := set $backend "MTU" $w.mtu }}{{ end -}}
{{- if has $w.backend (list "vxlan" "auto") -}}
{{- if ne (int $w.vni) 1 }}{{ $_ := set $backend "VNI" $w.vni }}{{ end -}}
{{- if $w.GBP }}{{ $_ := set $backend "GBP" true }}{{ end -}}
{{- if and $w.directRouting (eq $w.backend "vxlan") }}{{ $_ := set $backend "DirectRouting" true }}{{ end -}}
{{- if $w.macPrefix }}{{ $_ := set $backend "MacPrefix" $w.macPrefix }}{{ end -}}
{{- if ne $w.userspace "auto" }}{{ $_ := set $backend "Userspace" $w.userspace }}{{ end -}}
{{- end -}}
{{- $conf := dict "EnableNFTables" $w.enableNFTables "Backend" (mergeOverwrite $backend (deepCopy $w.backendConfig)) -}}
{{- if .Values.podCidr }}{{ $_ := set $conf "Network" .Values.podCidr }}{{ else }}{{ $_ := set $conf "EnableIPv4" false }}{{ end -}}
{{- with .Values.podCidrv6 }}{{ $_ := set $conf "EnableIPv6" true }}{{ $_ := set $conf "IPv6Network" . }}{{ end -}}
{{- if not (or .Values.podCidr .Values.podCidrv6) }}{{ fail "podCidr and podCidrv6 are both empty: a network needs one of them" }}{{ end -}}
{{- mergeOverwrite $conf (deepCopy $w.config) | toPrettyJson -}}
{{- end -}}

{{- /* What weftd may do: NET_RAW is for packet sockets, and for iptables of the legacy flavour. */ -}}
{{- define "weft.capabilities" -}}
{{- if or (include "weft.devices" .) (not .Values.weft.enableNFTables) -}}
[NET_ADMIN, NET_RAW]
{{- else -}}
[NET_ADMIN]
{{- end -}}
{{- end -}}

{{- /* Not empty if weftd is to carry packets itself. */ -}}
{{- define "weft.devices" -}}
{{- if or (eq .Values.weft.backend "udp") .Values.weft.userspaceDevices (eq .Values.weft.userspace "always") }}yes{{ end -}}
{{- end -}}

{{- /* What kubelet runs, with the socket that weftd is told to listen on. */ -}}
{{- define "weft.probe" -}}
exec:
  command:
    - /opt/bin/weft-cni
    - probe
    {{- range index . 1 }}
    {{- if regexMatch "^--?control-socket=" . }}
    - {{ . | quote }}
    {{- end }}
    {{- end }}
    - {{ index . 0 }}
{{- end -}}
