//! Makes the API calls of commands, and classifies their failures by the consequence for the object; `retry` decides which
//! are made again. Of an answer only the fields that commands read are kept: most of it are field managers.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use arcstr::ArcStr;
use http::{header::RETRY_AFTER, response::Parts};
use jiff::Timestamp;
use k8s_openapi::{api::autoscaling::v1::Scale as ScaleObject, apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry};
use kube::{
    Client, Resource as _, ResourceExt as _,
    api::{DeleteParams, DynamicObject, GetParams, ListParams, ObjectList, Patch, PatchParams, Preconditions},
    client::Body,
    core::{ApiResource, Request, Status, request},
};
use opentelemetry::{KeyValue, trace::SpanKind};
use rules::{
    GroupId,
    call_error::CallError,
    capi::{Keys, ObjectKey, ScalableKind, Uid},
    field_manager::SizeWriter,
    group_version::GroupVersion,
};
use serde::{
    Deserialize,
    de::{DeserializeOwned, IgnoredAny},
};
use serde_json::{Value, json};
use shared_informer::ResourceVersion;

use super::tenancy::{MayWrite, Tenancy, WriteBudget};
use crate::traces::{Span, Traces};
use connect::discovery::CoreResources;

/// The number of Machines on one page of a list.
const PAGE: u32 = 500;
/// The maximum number of pages of a list of Machines. An API server that returns more would occupy the command for
/// ever.
const MOST_PAGES: u32 = 300;

/// A group's object as it was read.
#[derive(Clone, Debug)]
pub(super) struct GroupState {
    pub(super) version: GroupVersion,
    /// The object's `metadata.managedFields`.
    pub(super) managed: Vec<ManagedFieldsEntry>,
}

impl From<DynamicObject> for GroupState {
    fn from(DynamicObject { metadata, data, .. }: DynamicObject) -> Self {
        let replicas = data.pointer("/spec/replicas").and_then(Value::as_i64).unwrap_or_default();
        let version = GroupVersion {
            uid: metadata.uid.unwrap_or_default().into(),
            resource_version: metadata.resource_version.unwrap_or_default().into(),
            generation: metadata.generation.unwrap_or_default(),
            replicas: i32::try_from(replicas).unwrap_or(i32::MAX),
        };
        Self { version, managed: metadata.managed_fields.unwrap_or_default() }
    }
}

/// The fields of a Machine that are read before it is removed.
#[derive(Clone, Debug)]
pub(super) struct MachineDetails {
    pub(super) deleting: bool,
    /// The version that was read, which the next write tests.
    pub(super) version: ResourceVersion,
    pub(super) provider_id: Option<ArcStr>,
    /// The name in its nodeRef.
    pub(super) node_name: Option<ArcStr>,
    /// The value of its delete-machine annotation.
    pub(super) delete_mark: Option<ArcStr>,
}

/// How a size is written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum SizeCall {
    Write,
    /// Only tries it.
    DryRun,
    /// If nobody has written the object since the version that was seen, not even its controller.
    OfVersion,
}

/// A client of the management cluster's API server, for writes and for the reads that they need.
#[derive(Clone)]
pub struct Api {
    client: Client,
    resources: Arc<ArcSwapOption<CoreResources>>,
    keys: Keys,
    traces: Traces,
    tenancy: Tenancy,
}

impl Api {
    /// Returns a client that writes through `client`, which must not retry by itself, to the discovered resources.
    pub fn new(client: Client, resources: Arc<ArcSwapOption<CoreResources>>, keys: Keys) -> Self {
        Self { client, resources, keys, traces: Traces::default(), tenancy: Tenancy::default() }
    }

    /// Returns the same client, which records a span for each call.
    pub fn traced(self, traces: Traces) -> Self {
        Self { traces, ..self }
    }

    /// Returns the same client for one of many Clusters, which share a budget of writes. Each write is made only if the
    /// Cluster may be written at that time.
    pub fn of_tenant(self, may_write: Arc<dyn MayWrite>, budget: &WriteBudget) -> Self {
        Self { tenancy: Tenancy::of_one_of_many(may_write, budget), ..self }
    }

    pub(super) fn tenancy(&self) -> &Tenancy {
        &self.tenancy
    }

    /// Returns true if a MachineSet counts Machines that are being deleted as replicas.
    pub(super) fn counts_deleting(&self) -> bool {
        self.keys.counts_deleting()
    }

    pub(super) fn traces(&self) -> &Traces {
        &self.traces
    }

    /// Returns the request builder of the kind that `pick` finds, in a namespace.
    fn requests(
        &self,
        namespace: &str,
        pick: impl Fn(&CoreResources) -> Option<&ApiResource>,
    ) -> Result<Request, CallError> {
        let resources = self.resources.load();
        let resource = resources.as_deref().and_then(pick).ok_or(CallError::NotDiscovered)?;
        Ok(Request::new(DynamicObject::url_path(resource, Some(namespace))))
    }

    fn group_requests(&self, id: &GroupId) -> Result<Request, CallError> {
        self.requests(&id.key.namespace, |resources| resources.scalable(id.kind))
    }

    fn machine_requests(&self, namespace: &str) -> Result<Request, CallError> {
        self.requests(namespace, |resources| Some(&resources.machine))
    }

    /// Sends a request. kube's own methods would drop the Retry-After header.
    async fn call<T: DeserializeOwned>(
        &self,
        request: Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<T, CallError> {
        let request = request.map_err(|error| CallError::GivenUp(error.to_string()))?;
        let _slot = self.tenancy.read_slot(request.method()).await;
        let span = self.span_of(&request);
        let result = self.exchange(request).await;
        match &result {
            Ok(_) => span.end("ok", None),
            Err(error) => span.end(error.label(), Some(error.label().to_owned())),
        }
        result
    }

    /// Returns the span of an API call; its method and path identify the object.
    fn span_of(&self, request: &http::Request<Vec<u8>>) -> Span {
        if !self.traces.are_on() {
            return Span::default();
        }
        let (method, path) = (request.method().as_str(), request.uri().path());
        // …/namespaces/NAMESPACE/PLURAL/NAME/SUBRESOURCE
        let mut parts = path.split('/').skip_while(|&part| part != "namespaces").skip(2);
        let (plural, subresource) = (parts.next().unwrap_or_default(), parts.nth(1));
        let name = match subresource {
            Some(subresource) => format!("{method} {plural}/{subresource}"),
            None => format!("{method} {plural}"),
        };
        let attributes =
            vec![KeyValue::new("http.request.method", method.to_owned()), KeyValue::new("url.path", path.to_owned())];
        self.traces.part(name, SpanKind::Client, attributes)
    }

    async fn exchange<T: DeserializeOwned>(&self, request: http::Request<Vec<u8>>) -> Result<T, CallError> {
        let unknown = |error: &dyn fmt::Display| CallError::OutcomeUnknown(error.to_string(), None);
        let answer = self.client.send(request.map(Body::from)).await.map_err(|error| unknown(&error))?;
        let (head, body) = answer.into_parts();
        let body = body.collect_bytes().await.map_err(|error| unknown(&error))?;
        if head.status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| unknown(&error));
        }
        Err(call_error(&head, &body))
    }

    /// Reads a group's object.
    pub(super) async fn read_group(&self, id: &GroupId) -> Result<GroupState, CallError> {
        let request = self.group_requests(id)?.get(&id.key.name, &GetParams::default());
        self.call(request).await.map(|object: DynamicObject| GroupState::from(object))
    }

    /// Writes the size `to` under the command's own field manager, if object and size are the ones seen. The JSON of a
    /// Scale of 0 replicas has no `replicas` field, so the absence is tested, and the field is added instead of
    /// replaced. API servers record no field manager for a size of 0.
    pub(super) async fn write_size(
        &self,
        id: &GroupId,
        seen: &GroupVersion,
        to: i32,
        writer: &SizeWriter,
        how: SizeCall,
    ) -> Result<GroupVersion, CallError> {
        let (from, dry_run) = (seen.replicas, how == SizeCall::DryRun);
        let (test, set) = if from == 0 {
            (
                json!({"op": "test", "path": "/spec", "value": {}}),
                json!({"op": "add", "path": "/spec/replicas", "value": to}),
            )
        } else {
            (
                json!({"op": "test", "path": "/spec/replicas", "value": from}),
                json!({"op": "replace", "path": "/spec/replicas", "value": to}),
            )
        };
        let is_same = if how == SizeCall::OfVersion {
            json!({"op": "test", "path": "/metadata/resourceVersion", "value": seen.resource_version.to_string()})
        } else {
            json!({"op": "test", "path": "/metadata/uid", "value": seen.uid.to_string()})
        };
        let patch = json_patch_of(vec![is_same, test, set])?;
        let params = PatchParams { field_manager: Some(writer.to_string()), dry_run, ..PatchParams::default() };
        let request = self.group_requests(id)?.patch_subresource("scale", &id.key.name, &params, &patch);
        let scale: ScaleObject = self.call(request).await?;
        Ok(GroupVersion {
            resource_version: scale.metadata.resource_version.unwrap_or_default().into(),
            // A Scale has no generation. If this one is wrong, the next write that tests it fails, and the object is
            // read.
            generation: seen.generation.saturating_add(1),
            replicas: scale.spec.and_then(|spec| spec.replicas).unwrap_or_default(),
            ..seen.clone()
        })
    }

    /// Reads a Machine. Returns `None` if there is none with this name and uid.
    pub(super) async fn read_machine(&self, key: &ObjectKey, uid: &Uid) -> Result<Option<MachineDetails>, CallError> {
        let request = self.machine_requests(&key.namespace)?.get(&key.name, &GetParams::default());
        let found: DynamicObject = match self.call(request).await {
            Ok(found) => found,
            Err(CallError::Missing(_)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let text = |pointer: &str| {
            let text = found.data.pointer(pointer).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(ArcStr::from)
        };
        let is_same = found.metadata.uid.as_deref().is_some_and(|found| *uid == Uid::from(found));
        Ok(is_same.then(|| MachineDetails {
            deleting: found.metadata.deletion_timestamp.is_some(),
            version: found.metadata.resource_version.as_deref().unwrap_or_default().into(),
            provider_id: text("/spec/providerID"),
            node_name: text("/status/nodeRef/name"),
            delete_mark: found.annotations().get(&*self.keys.delete_machine).map(|mark| mark.as_str().into()),
        }))
    }

    /// Lists the Machines of a group: those that one of `owners` owns, or whose label names its MachineDeployment.
    pub(super) async fn list_machines(
        &self,
        id: &GroupId,
        owners: &[(ScalableKind, ArcStr)],
    ) -> Result<Vec<MachineMeta>, CallError> {
        let machines = self.machine_requests(&id.key.namespace)?;
        let mut params = ListParams::default().limit(PAGE);
        let mut seen = Vec::new();
        for _ in 0..MOST_PAGES {
            let page: ObjectList<MachineObject> = self.call(machines.list_metadata(&params)).await?;
            let machines = page.items.into_iter().map(|machine| machine.metadata);
            let is_labelled =
                |machine: &MachineMeta| id.kind == ScalableKind::MachineDeployment && machine.is_labelled(&id.key.name);
            seen.extend(machines.filter(|machine| machine.is_of(owners) || is_labelled(machine)));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(seen),
            }
        }
        Err(CallError::GivenUp(format!("the list of Machines has more than {MOST_PAGES} pages of {PAGE}")))
    }

    /// Sets the delete-machine annotation of a Machine, and returns the updated Machine. The uid rules out another
    /// Machine of that name, and the version any change since.
    pub(super) async fn set_mark(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: &ResourceVersion,
        value: &str,
    ) -> Result<MachineMeta, CallError> {
        let patch = json!({
            "metadata": {
                "uid": uid.to_string(),
                "resourceVersion": version.to_string(),
                "annotations": {self.keys.delete_machine.as_str(): value},
            },
        });
        let machines = self.machine_requests(&key.namespace)?;
        let request = machines.patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(patch));
        self.call(request).await.map(|marked: MachineObject| marked.metadata)
    }

    /// Removes the delete-machine annotation of a Machine with this uid.
    pub(super) async fn take_mark(&self, key: &ObjectKey, uid: &Uid) -> Result<(), CallError> {
        let patch = json!({
            "metadata": {"uid": uid.to_string(), "annotations": {self.keys.delete_machine.as_str(): null}},
        });
        let machines = self.machine_requests(&key.namespace)?;
        let request = machines.patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(patch));
        self.call(request).await.map(|_: IgnoredAny| ())
    }

    /// Deletes a Machine if it has this uid and is unchanged since this version; a dry run only tries it.
    pub(super) async fn delete_machine(
        &self,
        key: &ObjectKey,
        uid: &Uid,
        version: &ResourceVersion,
        dry_run: bool,
    ) -> Result<(), CallError> {
        let preconditions = Preconditions { uid: Some(uid.to_string()), resource_version: Some(version.to_string()) };
        let params = DeleteParams { preconditions: Some(preconditions), dry_run, ..DeleteParams::default() };
        let request = self.machine_requests(&key.namespace)?.delete(&key.name, &params);
        self.call(request).await.map(|_: IgnoredAny| ())
    }
}

fn json_patch_of(operations: Vec<Value>) -> Result<Patch<()>, CallError> {
    let patch = serde_json::from_value(Value::Array(operations));
    patch.map(Patch::Json).map_err(|error| CallError::GivenUp(error.to_string()))
}

fn call_error(head: &Parts, body: &[u8]) -> CallError {
    let code = head.status;
    // Proxies answer in plain text, and so do API servers for a path that they don't serve.
    let status: Status = serde_json::from_slice(body)
        .unwrap_or_else(|_| Status { message: String::from_utf8_lossy(body).trim().to_owned(), ..Status::default() });
    let message = if status.message.is_empty() { code.to_string() } else { status.message };
    let header = head.headers.get(RETRY_AFTER).and_then(|seconds| seconds.to_str().ok()?.parse().ok());
    let details = status.details.as_ref();
    let seconds = header.or_else(|| details.map(|details| u64::from(details.retry_after_seconds)));
    let after = seconds.filter(|seconds| *seconds > 0).map(Duration::from_secs);
    match code.as_u16() {
        // A failed test of a patch is answered with 422, and so is the denial of a policy that gives no reason of its
        // own.
        422 if !is_by_admission(&message) => CallError::Rejected(message),
        // 410: the continue token of a list has expired, and the list has to begin again.
        409 | 410 => CallError::Conflict(message),
        429 => CallError::Busy(message, after),
        // A 404 about the path, for a version that is no longer served, says nothing about the object.
        404 if details.is_some_and(|details| !details.name.is_empty()) => CallError::Missing(message),
        404 => CallError::NotDiscovered,
        // Proxies answer this when the server or the client was too slow; the call may have been carried out.
        408 | 499 => CallError::OutcomeUnknown(format!("{code}: {message}"), after),
        401 => CallError::Unauthorized(message),
        403 if !is_by_admission(&message) => CallError::Forbidden(message),
        400..=499 => CallError::Refused(message),
        _ => CallError::OutcomeUnknown(format!("{code}: {message}"), after),
    }
}

/// Returns true if an admission webhook or policy denied the call, with 403 or 422. Neither more permissions nor
/// another read changes such an answer.
fn is_by_admission(message: &str) -> bool {
    message.contains("admission webhook") || message.contains("AdmissionPolicy '")
}

/// The label of a Machine that names its MachineDeployment.
const DEPLOYMENT_NAME: &str = "cluster.x-k8s.io/deployment-name";

/// A Machine, of which the answer has the metadata.
#[derive(Clone, Deserialize)]
struct MachineObject {
    metadata: MachineMeta,
}

/// The metadata of a Machine.
#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineMeta {
    uid: Option<String>,
    deletion_timestamp: Option<String>,
    owner_references: Option<Vec<Owner>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Deserialize)]
struct Owner {
    kind: String,
    name: String,
}

impl MachineMeta {
    pub(super) fn uid(&self) -> Uid {
        self.uid.as_deref().unwrap_or_default().into()
    }

    pub(super) fn is_deleting(&self) -> bool {
        self.deletion_timestamp.is_some()
    }

    /// Returns the time since when it is being deleted, if it can be read.
    pub(super) fn deleting_since(&self) -> Option<Timestamp> {
        self.deletion_timestamp.as_deref().and_then(rules::capi::time)
    }

    /// Returns true if one of `owners` owns this Machine.
    fn is_of(&self, owners: &[(ScalableKind, ArcStr)]) -> bool {
        let is = |of: &Owner| owners.iter().any(|owner| owner.0.as_str() == of.kind && owner.1 == of.name);
        self.owner_references.iter().flatten().any(is)
    }

    /// Returns true if its label names this MachineDeployment. The Machines of a MachineSet that the watch hasn't
    /// delivered yet are found by their label alone.
    fn is_labelled(&self, deployment: &str) -> bool {
        self.labels.as_ref().and_then(|labels| labels.get(DEPLOYMENT_NAME)).is_some_and(|name| name == deployment)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;

    #[test]
    fn a_machine_is_of_its_owner_and_of_the_machine_deployment_of_its_label() {
        let meta = |metadata: Value| from_value::<MachineObject>(json!({ "metadata": metadata })).unwrap().metadata;
        let of = |kind, name: &str| [(kind, name.into())];
        let machine = meta(json!({
            "uid": "u0",
            "deletionTimestamp": "2026-01-01T00:00:00Z",
            "labels": { DEPLOYMENT_NAME: "workers" },
            "ownerReferences": [{ "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet", "name": "s0", "uid": "x" }],
            "managedFields": [{ "fieldsV1": { "f:metadata": {} } }],
        }));
        assert!(machine.uid() == Uid::from("u0") && machine.is_deleting() && machine.deleting_since().is_some());
        assert!(
            machine.is_of(&of(ScalableKind::MachineSet, "s0")) && !machine.is_of(&of(ScalableKind::MachineSet, "s1"))
        );
        assert!(!machine.is_of(&of(ScalableKind::MachineDeployment, "s0")));
        assert!(machine.is_labelled("workers") && !machine.is_labelled("other"));

        let empty = meta(json!({ "deletionTimestamp": null, "labels": null, "ownerReferences": null }));
        assert!(!empty.is_deleting() && !empty.is_labelled("") && !empty.is_of(&of(ScalableKind::MachineSet, "")));
    }
}
