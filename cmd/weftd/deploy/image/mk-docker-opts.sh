#!/bin/sh
# Turns weftd's subnet file into options for dockerd, as flannel's script of this name does, with the
# same options, output and exit status. It is a script and not a program, so that
# `sh mk-docker-opts.sh` in an old unit goes on working, and it needs no program of weft's.
#
# Unlike flannel's script it parses the subnet file and does not execute it, and it replaces the
# output in one step, so that a dockerd that starts meanwhile sees the old file or the new one.
set -u
export LC_ALL=C

usage() {
	cat >&2 <<EOF
usage: $0 [-f SUBNET-FILE] [-d OUTPUT] [-i] [-c] [-m] [-k KEY]

Writes the options of dockerd that follow from a subnet file.
  -f  subnet file (default /run/flannel/subnet.env)
  -d  file to write (default /run/docker_opts.env)
  -i  each option as a variable of its own: DOCKER_OPT_MTU="--mtu=1450"
  -c  all options in one variable; without -i and -c both are written
  -k  name of that variable (default DOCKER_OPTS); what the environment has under it comes first
  -m  leave --ip-masq out
EOF
	exit 1
}

fail() {
	echo "$0: $*" >&2
	exit 1
}

subnet_file=/run/flannel/subnet.env
out=/run/docker_opts.env
key=DOCKER_OPTS
each=false
combined=false
masq=true
while getopts f:d:icmk:h opt; do
	case $opt in
	f) subnet_file=$OPTARG ;;
	d) out=$OPTARG ;;
	i) each=true ;;
	c) combined=true ;;
	m) masq=false ;;
	k) key=$OPTARG ;;
	*) usage ;;
	esac
done
if [ $each = false ] && [ $combined = false ]; then
	each=true
	combined=true
fi
# eval is called with the name below, so nothing else may be in it.
case $key in
'' | [0-9]* | *[!A-Za-z0-9_]*)
	echo "$0: -k $key: not the name of a variable" >&2
	usage
	;;
esac

subnet=${FLANNEL_SUBNET-}
mtu=${FLANNEL_MTU-}
ipmasq=${FLANNEL_IPMASQ-}
if [ -f "$subnet_file" ]; then
	while IFS='=' read -r name value || [ -n "$name" ]; do
		value=${value#[\"\']}
		value=${value%[\"\']}
		case $name in
		FLANNEL_SUBNET) subnet=$value ;;
		FLANNEL_MTU) mtu=$value ;;
		FLANNEL_IPMASQ) ipmasq=$value ;;
		esac
	done <"$subnet_file"
else
	echo "$0: there is no $subnet_file: is weftd running, and ready (weft status)?" >&2
fi
# Both are written into a file that a shell may execute.
case $subnet$mtu in
*[!0-9./]*) fail "$subnet_file: FLANNEL_SUBNET=$subnet, FLANNEL_MTU=$mtu: not an IPv4 prefix and a number" ;;
esac

[ -z "$subnet" ] || DOCKER_OPT_BIP=--bip=$subnet
[ -z "$mtu" ] || DOCKER_OPT_MTU=--mtu=$mtu
if [ $masq = true ]; then
	# Either weftd masquerades or Docker, and never both.
	case $ipmasq in
	'') ;;
	true) DOCKER_OPT_IPMASQ=--ip-masq=false ;;
	false) DOCKER_OPT_IPMASQ=--ip-masq=true ;;
	*) fail "Invalid value of FLANNEL_IPMASQ: $ipmasq" ;;
	esac
fi

# Options that the environment adds under the same prefix are passed on.
names=$(
	{
		[ -z "${DOCKER_OPT_BIP+x}" ] || echo DOCKER_OPT_BIP
		[ -z "${DOCKER_OPT_IPMASQ+x}" ] || echo DOCKER_OPT_IPMASQ
		[ -z "${DOCKER_OPT_MTU+x}" ] || echo DOCKER_OPT_MTU
		env | sed -n 's/^\(DOCKER_OPT_[A-Za-z0-9_]*\)=.*/\1/p'
	} | sort -u
)
eval "all=\${$key-}"
[ -z "$all" ] || all="$all "
text=
for name in $names; do
	eval "value=\$$name"
	[ $each = false ] || text="$text$name=\"$value\"
"
	all="$all $value"
done
[ $combined = false ] || text="$text$key=\"$all\"
"

if [ -L "$out" ] || { [ -e "$out" ] && [ ! -f "$out" ]; }; then
	printf %s "$text" >"$out" || fail "$out cannot be written" # a pipe, or /dev/stdout, which stays
else
	tmp=$out.$$
	trap 'rm -f "$tmp"' EXIT
	{ printf %s "$text" >"$tmp" && mv -f "$tmp" "$out"; } || fail "$out cannot be written"
fi

# network_of prints the network of an IPv4 prefix: 10.5.72.0/24 of 10.5.72.1/24.
network_of() {
	bits=${1#*/}
	rest=${1%/*}
	net=
	while [ -n "$rest" ]; do
		octet=${rest%%.*}
		case $rest in *.*) rest=${rest#*.} ;; *) rest= ;; esac
		take=$((bits > 8 ? 8 : bits))
		bits=$((bits - take))
		net=$net${net:+.}$((octet & (255 << (8 - take)) & 255))
	done
	echo "$net/${1#*/}"
}

# If there is a route to the subnet through a gateway, another host has it, and dockerd must not use it.
case $subnet in
*.*.*.*/*)
	net=$(network_of "$subnet")
	if via=$(ip -4 route show exact "$net" 2>/dev/null) && [ "${via#* via }" != "$via" ]; then
		fail "$net is routed to another host ($via): this host's lease and its subnet file disagree"
	fi
	;;
esac
