//! What the Roles of a release grant, right by right, so that a test can take each of them away from the very object that grants it,
//! and wait until the API server goes by that.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{
    Api, Client, Config,
    api::PostParams,
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::{
    helm::RELEASE,
    objects::Objects,
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
    /// The one object that it is granted for.
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
    /// The namespace that it is granted in; none is all of them.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.role.namespace.as_deref()
    }
}

/// The release of one namespace, and whom it grants rights to.
pub struct Granted {
    objects: Objects,
    namespace: String,
    account: Client,
}

impl Granted {
    /// Of the release in a namespace, whose ServiceAccount has this kubeconfig.
    pub async fn of(objects: &Objects, namespace: &str, account: &Value) -> Result<Self> {
        let kubeconfig: Kubeconfig = serde_json::from_value(account.clone())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Self { objects: objects.clone(), namespace: namespace.to_owned(), account: Client::try_from(config)? })
    }

    /// All that its Roles and ClusterRoles grant.
    pub async fn all(&self) -> Result<Vec<Grant>> {
        let mut grants = Vec::new();
        for kind in ["Role", "ClusterRole"] {
            for object in self.objects.list(kind, &format!("app.kubernetes.io/instance={RELEASE}")).await? {
                let annotations = object.metadata.annotations.unwrap_or_default();
                // ClusterRoles of other namespaces' releases have the same label.
                if annotations.get("meta.helm.sh/release-namespace") != Some(&self.namespace) {
                    continue;
                }
                let name = object.metadata.name.context("a role without a name")?;
                let role = Role { kind, name, namespace: object.metadata.namespace };
                let rules = object.data["rules"].as_array().cloned().unwrap_or_default();
                for (rule, granted) in rules.iter().enumerate() {
                    grants.extend(each(&role, rule, granted));
                }
            }
        }
        ensure!(!grants.is_empty(), "the release grants nothing");
        Ok(grants)
    }

    /// Takes it away from its role, and waits until it is gone. What the role was is returned.
    pub async fn take_away(&self, grant: &Grant, resource: &str) -> Result<Value> {
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

    /// Gives back what was taken away.
    pub async fn give_back(&self, grant: &Grant, resource: &str, before: Value) -> Result<()> {
        self.objects.patch(grant.role.kind, &grant.role.name, json!({ "rules": before })).await?;
        self.comes_to(grant, resource, true).await
    }

    /// Waits until the API server says that it is allowed, or that it isn't. `resource` is one that the grant is for.
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

/// Each verb of each resource of a rule.
fn each(role: &Role, rule: usize, granted: &Value) -> Vec<Grant> {
    let texts = |part: &str| -> Vec<String> { serde_json::from_value(granted[part].clone()).unwrap_or_default() };
    let mut grants = Vec::new();
    for group in texts("apiGroups") {
        for resource in texts("resources") {
            for verb in texts("verbs") {
                grants.push(Grant {
                    role: role.clone(),
                    rule,
                    group: group.clone(),
                    resource: resource.clone(),
                    verb,
                    name: texts("resourceNames").into_iter().next(),
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
