package kube

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// grant makes weft's service account and gives it exactly rules, in place of those that it had.
func (c *Cluster) grant(ctx context.Context, rules []rbacv1.PolicyRule) error {
	if err := c.createNamespace(ctx, flannelNamespace); err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: flannelAccount}
	account := &corev1.ServiceAccount{ObjectMeta: meta}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: flannelAccount},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: flannelNamespace, Name: flannelAccount}},
	}
	rbac := c.Admin.RbacV1()
	if _, err := c.Admin.CoreV1().ServiceAccounts(flannelNamespace).Create(ctx, account, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if _, err := rbac.ClusterRoles().Update(ctx, role, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = rbac.ClusterRoles().Create(ctx, role, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	} else if err != nil {
		return err
	}
	if _, err := rbac.ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// token returns a token of weft's service account, as a kubelet puts it into a pod.
func (c *Cluster) token(ctx context.Context, life time.Duration) (string, error) {
	seconds := int64(life.Seconds())
	req := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	got, err := c.Admin.CoreV1().ServiceAccounts(flannelNamespace).CreateToken(ctx, flannelAccount, req,
		metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("token for %s/%s: %w", flannelNamespace, flannelAccount, err)
	}
	return got.Status.Token, nil
}

// WriteKubeconfig writes a file by which a client acts as weft's service account, with no more than its
// rights.
func (c *Cluster) WriteKubeconfig(ctx context.Context, path string) error {
	token, err := c.token(ctx, 24*time.Hour)
	if err != nil {
		return err
	}
	cfg := c.clientConfig()
	cfg.BearerToken = token
	return writeKubeconfig(path, cfg)
}

// manifest is the file that an administrator applies.
const manifest = "../../cmd/weftd/deploy/kubernetes/base/weft.yaml"

// Rules are what the ClusterRole of the manifest allows.
func Rules() ([]rbacv1.PolicyRule, error) {
	text, err := os.ReadFile(filepath.FromSlash(manifest))
	if err != nil {
		return nil, err
	}
	for doc := range strings.SplitSeq(string(text), "\n---") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(doc), &role); err == nil && role.Kind == "ClusterRole" {
			return role.Rules, nil
		}
	}
	return nil, fmt.Errorf("no ClusterRole in %s", manifest)
}
