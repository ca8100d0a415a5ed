//! The rights that the Roles of a release grant, one by one: a test can remove each from the object that grants it, and
//! wait until the API server enforces that.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{
    Api, Client,
    api::{DynamicObject, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};

use crate::{
    objects::{self, Objects},
    wait::{SOON, eventually},
};

/// A verb of a resource that a Role or ClusterRole grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    role: Role,
    rule: usize,
    /// The API group; empty for the core group.
    pub group: String,
    /// The resource with its subresource, or `*`.
    pub resource: String,
    /// The verb.
    pub verb: String,
    /// The objects that it is granted for, separated by commas, or `None` for all.
    pub name: Option<String>,
}

/// An object that grants rights.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Role {
    kind: &'static str,
    name: String,
    namespace: Option<String>,
}

impl Grant {
    /// Returns the namespace that it is granted in, or `None` for all.
    pub fn namespace(&self) -> Option<&str> {
        self.role.namespace.as_deref()
    }
}

/// The release of one namespace, with its ServiceAccount.
pub struct Granted {
    objects: Objects,
    namespace: String,
    account: Client,
}

impl Granted {
    /// Returns the release in a namespace, whose ServiceAccount has this kubeconfig.
    pub async fn of(objects: &Objects, namespace: &str, account: &Value) -> Result<Self> {
        let kubeconfig: Kubeconfig = serde_json::from_value(account.clone())?;
        let account = objects::client(kubeconfig).await?;
        Ok(Self { objects: objects.clone(), namespace: namespace.to_owned(), account })
    }

    /// Returns everything that the release's Roles and ClusterRoles grant. Its bindings must refer only to these roles.
    pub async fn all(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for kind in ["Role", "ClusterRole"] {
            for object in self.of_release(kind).await? {
                let name = object.metadata.name.context("a role without a name")?;
                let role = Role { kind, name, namespace: object.metadata.namespace };
                let rules = object.data["rules"].as_array().cloned().unwrap_or_default();
                for (number, rule) in rules.iter().enumerate() {
                    let granted = each(&role, number, rule);
                    ensure!(!granted.is_empty(), "{kind} {}: a rule that is of no resource: {rule}", role.name);
                    grants.extend(granted);
                }
            }
        }
        for kind in ["RoleBinding", "ClusterRoleBinding"] {
            for binding in self.of_release(kind).await? {
                let to = &binding.data["roleRef"];
                let is_own = |grant: &Grant| to["kind"] == grant.role.kind && to["name"] == *grant.role.name;
                ensure!(grants.iter().any(is_own), "{kind} {:?} is to a role of others: {to}", binding.metadata.name);
            }
        }
        ensure!(!grants.is_empty(), "the release grants nothing");
        Ok(grants)
    }

    /// Returns the objects of a kind that the release has created.
    async fn of_release(&self, kind: &str) -> Result<Vec<DynamicObject>> {
        let mut objects = self.objects.list(kind, "").await?;
        objects.retain(|object| {
            let annotations = object.metadata.annotations.as_ref();
            // The releases of all namespaces have the same name.
            annotations.and_then(|all| all.get("meta.helm.sh/release-namespace")) == Some(&self.namespace)
        });
        Ok(objects)
    }

    /// Removes a right from its role, and waits until the API server enforces the removal. Returns the role's former
    /// rules.
    pub async fn revoke(&self, grant: &Grant, resource: &str) -> Result<Value> {
        let Role { kind, name, .. } = &grant.role;
        let before = self.objects.get(kind, name).await?.data["rules"].clone();
        let mut rules = before.as_array().cloned().unwrap_or_default();
        let rule = rules.get_mut(grant.rule).context("the role has changed")?;
        let mut rest = rule.clone();
        remove(&mut rule["resources"], &grant.resource);
        rest["resources"] = json!([grant.resource]);
        remove(&mut rest["verbs"], &grant.verb);
        rules.push(rest);
        rules.retain(|rule| ["resources", "verbs"].iter().all(|part| rule[*part] != json!([])));
        self.objects.patch(kind, name, json!({ "rules": rules })).await?;
        self.comes_to(grant, resource, false).await?;
        Ok(before)
    }

    /// Restores a removed right.
    pub async fn restore(&self, grant: &Grant, resource: &str, before: Value) -> Result<()> {
        self.objects.patch(grant.role.kind, &grant.role.name, json!({ "rules": before })).await?;
        self.comes_to(grant, resource, true).await
    }

    /// Waits until the API server allows or denies a right. `resource` is one that the grant covers.
    async fn comes_to(&self, grant: &Grant, resource: &str, allowed: bool) -> Result<()> {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, subresource)) => (resource, Some(subresource.to_owned())),
            None => (resource, None),
        };
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(grant.group.clone()),
                    resource: Some(resource.to_owned()),
                    subresource,
                    verb: Some(grant.verb.clone()),
                    namespace: grant.namespace().map(str::to_owned),
                    name: grant.name.clone(),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let reviews: Api<SelfSubjectAccessReview> = Api::all(self.account.clone());
        eventually(&format!("{} {resource} allowed: {allowed}", grant.verb), SOON, async || {
            let answer = reviews.create(&PostParams::default(), &review).await?;
            ensure!(answer.status.is_some_and(|status| status.allowed == allowed), "it isn't so yet");
            Ok(())
        })
        .await
    }
}

/// Returns each verb of each resource of a rule.
fn each(role: &Role, number: usize, granted: &Value) -> Vec<Grant> {
    let texts = |part: &str| -> Vec<String> { serde_json::from_value(granted[part].clone()).unwrap_or_default() };
    let mut grants = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                grants.push(Grant {
                    role: role.clone(),
                    rule: number,
                    group: group.clone(),
                    resource: resource.clone(),
                    verb,
                    name: Some(texts("resourceNames").join(",")).filter(|names| !names.is_empty()),
                });
            }
        }
    }
    grants
}

fn remove(texts: &mut Value, text: &str) {
    if let Some(texts) = texts.as_array_mut() {
        texts.retain(|one| one != text);
    }
}
