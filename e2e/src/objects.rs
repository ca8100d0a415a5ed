//! Objects on an API server, read and written as JSON by the test's own administrator.

use std::fmt;

use anyhow::{Context, Result, ensure};
use k8s_openapi::{api::autoscaling::v1::Scale, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, Config,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::{KubeConfigOptions, Kubeconfig},
};
use serde_json::{Value, json};

use crate::proto::ExternalGrpcNode;

/// The version of Cluster API's contract in which an API server stores its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contract {
    /// `cluster.x-k8s.io/v1beta1`
    V1Beta1,
    /// `cluster.x-k8s.io/v1beta2`
    V1Beta2,
    /// `machine.openshift.io/v1beta1`: not Cluster API, but much like it
    MachineApi,
}

impl Contract {
    /// All tested versions of Cluster API.
    pub const ALL: [Self; 2] = [Self::V1Beta1, Self::V1Beta2];

    /// Returns the version as in names of files and tests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V1Beta1 => "v1beta1",
            Self::V1Beta2 => "v1beta2",
            Self::MachineApi => "machine-api",
        }
    }

    /// Returns the API group of the kinds that the program reads.
    pub fn group(self) -> &'static str {
        match self {
            Self::V1Beta1 | Self::V1Beta2 => CAPI_GROUP,
            Self::MachineApi => MACHINE_API_GROUP,
        }
    }

    /// Returns their version, as in `apiVersion`.
    pub fn version(self) -> &'static str {
        match self {
            Self::V1Beta1 | Self::MachineApi => "v1beta1",
            Self::V1Beta2 => "v1beta2",
        }
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The API group of Cluster API's own kinds.
pub const CAPI_GROUP: &str = "cluster.x-k8s.io";
/// The API group of OpenShift's Machine API.
pub const MACHINE_API_GROUP: &str = "machine.openshift.io";
/// The group of Cluster Autoscaler's own kinds.
pub const AUTOSCALING_GROUP: &str = "autoscaling.x-k8s.io";
/// The API group of the infrastructure templates.
pub const INFRASTRUCTURE_GROUP: &str = "infrastructure.cluster.x-k8s.io";
/// The kinds of Cluster API that the program reads. `MachinePool` need not be installed.
pub(crate) const CAPI_KINDS: [&str; 5] = ["Cluster", "MachineDeployment", "MachineSet", "Machine", "MachinePool"];

/// The resource of a kind on the API server.
#[derive(Debug)]
pub struct Place {
    /// The group, version, kind and plural.
    pub resource: ApiResource,
    /// True if its objects are namespaced.
    pub namespaced: bool,
}

impl Place {
    /// Returns the resource of one of the kinds that these tests use.
    pub fn of(kind: &str, contract: Contract) -> Self {
        let (group, version) = match kind {
            "ConfigMap" | "Namespace" | "Node" | "Pod" | "PodTemplate" | "Secret" | "Service" | "ServiceAccount" => {
                ("", "v1")
            }
            "Deployment" | "ReplicaSet" => ("apps", "v1"),
            "Job" => ("batch", "v1"),
            "Event" => ("events.k8s.io", "v1"),
            "PriorityClass" => ("scheduling.k8s.io", "v1"),
            "ClusterRole" | "ClusterRoleBinding" | "Role" | "RoleBinding" => ("rbac.authorization.k8s.io", "v1"),
            "CustomResourceDefinition" => ("apiextensions.k8s.io", "v1"),
            "MutatingWebhookConfiguration"
            | "ValidatingWebhookConfiguration"
            | "ValidatingAdmissionPolicy"
            | "ValidatingAdmissionPolicyBinding" => ("admissionregistration.k8s.io", "v1"),
            "CapacityBuffer" | "CapacityQuota" => (AUTOSCALING_GROUP, "v1beta1"),
            "ProvisioningRequest" => (AUTOSCALING_GROUP, "v1"),
            "KubeadmConfigTemplate" => ("bootstrap.cluster.x-k8s.io", "v1beta2"),
            "KubeadmControlPlane" => ("controlplane.cluster.x-k8s.io", "v1beta2"),
            kind if CAPI_KINDS.contains(&kind) || kind == "ClusterClass" => (contract.group(), contract.version()),
            // Kinds that the end-to-end tests serve themselves. Their version is unrelated to the contract's.
            kind if kind.starts_with("Loopback") => (INFRASTRUCTURE_GROUP, "v1alpha1"),
            _ => (INFRASTRUCTURE_GROUP, "v1beta2"),
        };
        let plural = match kind {
            // Neither English nor code generators derive this resource from its kind.
            "OxMachineTemplate" => "oxenmachinetemplates".to_owned(),
            "ClusterClass" | "PriorityClass" => format!("{}es", kind.to_lowercase()),
            "ValidatingAdmissionPolicy" => "validatingadmissionpolicies".to_owned(),
            _ => format!("{}s", kind.to_lowercase()),
        };
        let cluster_wide = [
            "Namespace",
            "Node",
            "CapacityQuota",
            "ClusterRole",
            "ClusterRoleBinding",
            "CustomResourceDefinition",
            "MutatingWebhookConfiguration",
            "PriorityClass",
            "ValidatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
        ];
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        Self {
            resource: ApiResource {
                group: group.to_owned(),
                version: version.to_owned(),
                api_version,
                kind: kind.to_owned(),
                plural,
            },
            namespaced: !cluster_wide.contains(&kind),
        }
    }
}

/// Reads and writes objects of one namespace, and cluster-scoped ones.
#[derive(Clone)]
pub struct Objects {
    client: Client,
    contract: Contract,
    namespace: String,
}

impl Objects {
    /// Creates access to the objects in `namespace`.
    pub fn new(client: Client, contract: Contract, namespace: &str) -> Self {
        Self { client, contract, namespace: namespace.to_owned() }
    }

    /// Returns its client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the version of Cluster API's contract that it writes.
    pub fn contract(&self) -> Contract {
        self.contract
    }

    /// Returns its namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let place = Place::of(kind, self.contract);
        if place.namespaced {
            Api::namespaced_with(self.client.clone(), &self.namespace, &place.resource)
        } else {
            Api::all_with(self.client.clone(), &place.resource)
        }
    }

    /// Creates an object, then writes its status, as controllers do. Sets namespace and apiVersion.
    pub async fn create(&self, mut object: Value) -> Result<DynamicObject> {
        let kind = object["kind"].as_str().context("an object without kind")?;
        let kind = kind.to_owned();
        let place = Place::of(&kind, self.contract);
        object["apiVersion"] = json!(place.resource.api_version);
        if place.namespaced {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let status = object.get("status").cloned();
        let name = object["metadata"]["name"].to_string();
        let what = || format!("creating {kind} {name}");

        let api = self.api(&kind);
        let object: DynamicObject = serde_json::from_value(object).with_context(what)?;
        let created = api.create(&PostParams::default(), &object).await.with_context(what)?;
        if let Some(status) = status {
            let name = created.metadata.name.as_deref().unwrap_or_default();
            let patch = Patch::Merge(json!({ "status": status }));
            api.patch_status(name, &PatchParams::default(), &patch)
                .await
                .with_context(|| format!("writing the status of {kind} {name}"))?;
        }
        Ok(created)
    }

    /// Reads an object.
    pub async fn get(&self, kind: &str, name: &str) -> Result<DynamicObject> {
        let read = self.api(kind).get(name).await;
        read.with_context(|| format!("reading {kind} {name}"))
    }

    /// Reads an object that may not exist.
    pub async fn find(&self, kind: &str, name: &str) -> Result<Option<DynamicObject>> {
        let read = self.api(kind).get_opt(name).await;
        read.with_context(|| format!("reading {kind} {name}"))
    }

    /// Lists the objects of a kind that a label selector matches.
    pub async fn list(&self, kind: &str, selector: &str) -> Result<Vec<DynamicObject>> {
        let listed = self.api(kind).list(&ListParams::default().labels(selector)).await;
        Ok(listed.with_context(|| format!("listing {kind}"))?.items)
    }

    /// Applies a merge patch to an object.
    pub async fn patch(&self, kind: &str, name: &str, patch: Value) -> Result<()> {
        self.patch_with(&PatchParams::default(), kind, name, patch).await
    }

    /// Tries a merge patch without applying it.
    pub async fn dry_run(&self, kind: &str, name: &str, patch: Value) -> Result<()> {
        self.patch_with(&PatchParams { dry_run: true, ..PatchParams::default() }, kind, name, patch).await
    }

    /// Applies a merge patch to an object with the field manager of another program.
    pub async fn patch_as(&self, manager: &str, kind: &str, name: &str, patch: Value) -> Result<()> {
        let params = PatchParams { field_manager: Some(manager.to_owned()), ..PatchParams::default() };
        self.patch_with(&params, kind, name, patch).await
    }

    async fn patch_with(&self, params: &PatchParams, kind: &str, name: &str, patch: Value) -> Result<()> {
        let patched = self.api(kind).patch(name, params, &Patch::Merge(patch)).await;
        patched.map(drop).with_context(|| format!("patching {kind} {name}"))
    }

    /// Applies a merge patch to the status of an object.
    pub async fn patch_status(&self, kind: &str, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api(kind)
            .patch_status(name, &PatchParams::default(), &patch)
            .await
            .with_context(|| format!("patching the status of {kind} {name}"))?;
        Ok(())
    }

    /// Sets annotations of an object; null removes one.
    pub async fn annotate(&self, kind: &str, name: &str, annotations: Value) -> Result<()> {
        let patch = json!({ "metadata": { "annotations": annotations } });
        self.patch(kind, name, patch).await
    }

    /// Deletes an object; finalizers keep it, with its deletionTimestamp set.
    pub async fn delete(&self, kind: &str, name: &str) -> Result<()> {
        self.api(kind)
            .delete(name, &DeleteParams::default())
            .await
            .with_context(|| format!("deleting {kind} {name}"))?;
        Ok(())
    }

    /// Deletes an object unless it is already gone.
    pub async fn remove(&self, kind: &str, name: &str) -> Result<()> {
        match self.api(kind).delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => deleted.map(drop).with_context(|| format!("deleting {kind} {name}")),
        }
    }

    /// Returns the size in an object's `/scale`, which its controller works towards.
    pub async fn scale(&self, kind: &str, name: &str) -> Result<i32> {
        let scale = self.scale_object(kind, name).await?;
        // 0 is left out of a Scale's JSON.
        Ok(scale.spec.and_then(|spec| spec.replicas).unwrap_or(0))
    }

    /// Returns the `/scale` of an object as it is served.
    pub async fn scale_object(&self, kind: &str, name: &str) -> Result<Scale> {
        let read = self.api(kind).get_scale(name).await;
        read.with_context(|| format!("reading the scale of {kind} {name}"))
    }

    /// Returns a Node as Cluster Autoscaler sends it.
    pub async fn node_as_sent(&self, name: &str) -> Result<ExternalGrpcNode> {
        let node = self.get("Node", name).await?;
        Ok(ExternalGrpcNode {
            provider_id: node.data["spec"]["providerID"].as_str().unwrap_or_default().to_owned(),
            name: name.to_owned(),
            labels: node.metadata.labels.unwrap_or_default().into_iter().collect(),
            annotations: node.metadata.annotations.unwrap_or_default().into_iter().collect(),
        })
    }

    /// Returns the value of a Machine's mark for deletion, if it has one.
    pub async fn deletion_mark(&self, machine: &str) -> Result<Option<String>> {
        let machine = self.get("Machine", machine).await?;
        let annotations = machine.metadata.annotations.unwrap_or_default();
        Ok(annotations.get("cluster.x-k8s.io/delete-machine").cloned())
    }

    /// Fails unless exactly these Machines of the namespace are marked for deletion.
    pub async fn assert_marked(&self, machines: &[&str]) -> Result<()> {
        let key = format!("{}/delete-machine", self.contract.group());
        let is_marked = |metadata: &ObjectMeta| metadata.annotations.as_ref().is_some_and(|all| all.contains_key(&key));
        self.assert_those("marked", machines, is_marked).await
    }

    /// Fails unless exactly these Machines of the namespace are being deleted, and none is marked.
    pub async fn assert_deleting(&self, machines: &[&str]) -> Result<()> {
        self.assert_those("being deleted", machines, |metadata| metadata.deletion_timestamp.is_some()).await?;
        self.assert_marked(&[]).await
    }

    async fn assert_those(&self, what: &str, expected: &[&str], are: impl Fn(&ObjectMeta) -> bool) -> Result<()> {
        let mut expected: Vec<&str> = expected.to_vec();
        expected.sort_unstable();
        let listed = self.api("Machine").list(&ListParams::default()).await?;
        let found = listed.items.iter().filter(|machine| are(&machine.metadata));
        let mut found: Vec<_> = found.map(|machine| machine.metadata.name.as_deref().unwrap_or_default()).collect();
        found.sort_unstable();
        ensure!(found == expected, "Machines {what}: {found:?}, expected: {expected:?}");
        Ok(())
    }
}

/// Returns a reference to an infrastructure object.
pub(crate) fn infrastructure_reference(kind: &str, name: &str) -> Value {
    json!({ "apiGroup": INFRASTRUCTURE_GROUP, "kind": kind, "name": name })
}

/// Returns a client with the credentials of a kubeconfig.
pub async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    Ok(Client::try_from(config)?)
}
