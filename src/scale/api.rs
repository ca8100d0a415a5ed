//! The API calls of commands, and what their failures mean. No decision is made here: a failure is told as what it
//! says of the object's state.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use k8s_openapi::api::autoscaling::v1::Scale as ScaleObject;
use kube::{
    Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, Preconditions},
    core::ApiResource,
};
use serde_json::json;

use crate::{
    capi::{CoreResources, Keys, Machine, Meta, REPLACED, ScalableKind, Uid},
    nodegroup::GroupId,
};

/// A size with the version of the object it was read or written in.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Size {
    pub(super) replicas: i32,
    pub(super) resource_version: String,
}

/// What a failed call says.
#[derive(Debug)]
pub(super) enum CallError {
    /// 422: the object isn't as the call expected, or the server refuses what it would become.
    Rejected(String),
    /// 409: another write came between, or the object is another one by now. Nothing was done.
    Conflict(String),
    /// 429: not now. Nothing was done. The server's wish when to try again, where it had one.
    Busy(String, Option<Duration>),
    /// No answer, or one that leaves open whether it was done: a 503 may come from a load balancer that lost the
    /// API server's answer.
    Unknown(String),
    /// 404: no such object.
    Missing(String),
    /// 401 or 403 for lack of a right.
    Forbidden(String),
    /// Refused for good, by a webhook for example.
    Refused(String),
    /// Discovery hasn't said yet how the kind is served.
    NotDiscovered,
}

/// The API server of the management cluster, for writes.
#[derive(Clone)]
pub struct Api {
    client: Client,
    resources: Arc<ArcSwapOption<CoreResources>>,
    keys: Keys,
}

impl Api {
    /// Writes through `client`, which must not retry by itself, to the resources that discovery has found.
    #[must_use]
    pub fn new(client: Client, resources: Arc<ArcSwapOption<CoreResources>>, keys: Keys) -> Self {
        Self { client, resources, keys }
    }

    fn of(
        &self,
        namespace: &str,
        pick: impl Fn(&CoreResources) -> Option<&ApiResource>,
    ) -> Result<kube::Api<DynamicObject>, CallError> {
        let resources = self.resources.load();
        let resource = resources.as_deref().and_then(pick).ok_or(CallError::NotDiscovered)?;
        Ok(kube::Api::namespaced_with(self.client.clone(), namespace, resource))
    }

    fn of_group(&self, id: &GroupId) -> Result<kube::Api<DynamicObject>, CallError> {
        self.of(&id.key.namespace, |resources| match id.kind {
            ScalableKind::MachineDeployment => Some(&resources.machine_deployment),
            ScalableKind::MachineSet => Some(&resources.machine_set),
            ScalableKind::MachinePool => resources.machine_pool.as_ref(),
        })
    }

    /// Reads the size.
    pub(super) async fn read_size(&self, id: &GroupId) -> Result<Size, CallError> {
        let scale = self.of_group(id)?.get_scale(&id.key.name).await.map_err(|error| call_error(&error))?;
        Ok(size_of(scale))
    }

    /// Writes `to` if the size is `from`. A Scale of 0 replicas leaves the field out of its JSON, so that there
    /// is nothing to test but its absence, and nothing to replace.
    pub(super) async fn write_size(&self, id: &GroupId, from: i32, to: i32) -> Result<Size, CallError> {
        let patch = if from == 0 {
            json!([
                {"op": "test", "path": "/spec", "value": {}},
                {"op": "add", "path": "/spec/replicas", "value": to},
            ])
        } else {
            json!([
                {"op": "test", "path": "/spec/replicas", "value": from},
                {"op": "replace", "path": "/spec/replicas", "value": to},
            ])
        };
        let patch: json_patch::Patch =
            serde_json::from_value(patch).map_err(|error| CallError::Refused(error.to_string()))?;
        let scale = self
            .of_group(id)?
            .patch_scale(&id.key.name, &PatchParams::default(), &Patch::Json::<()>(patch))
            .await
            .map_err(|error| call_error(&error))?;
        Ok(size_of(scale))
    }

    /// Sets the delete-machine annotation of a Machine to `value`, or takes it off. The uid makes sure that it is
    /// still the same Machine.
    pub(super) async fn set_mark(&self, machine: &Machine, value: Option<&str>) -> Result<(), CallError> {
        let key = &machine.meta.key;
        let patch = json!({
            "metadata": {"uid": machine.meta.uid.to_string(), "annotations": {self.keys.delete_machine.as_str(): value}},
        });
        let api = self.of(&key.namespace, |resources| Some(&resources.machine))?;
        api.patch_metadata(&key.name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .map(drop)
            .map_err(|error| call_error(&error))
    }
}

impl Api {
    /// Writes that a Machine of a group is replaced, if the group still tells of the one before. That it tells of none is
    /// tested by its being null, which API servers hold for true where there is nothing.
    pub(super) async fn write_replaced(
        &self,
        id: &GroupId,
        uid: &Uid,
        known: Option<&str>,
        text: &str,
    ) -> Result<(), CallError> {
        let path = format!("/metadata/annotations/{}", REPLACED.replace('/', "~1"));
        let patch = json!([
            {"op": "test", "path": "/metadata/uid", "value": uid.to_string()},
            {"op": "test", "path": path, "value": known},
            {"op": "add", "path": path, "value": text},
        ]);
        let patch: json_patch::Patch =
            serde_json::from_value(patch).map_err(|error| CallError::Refused(error.to_string()))?;
        let patch = Patch::Json::<()>(patch);
        let written = self.of_group(id)?.patch_metadata(&id.key.name, &PatchParams::default(), &patch).await;
        written.map(drop).map_err(|error| call_error(&error))
    }

    /// Deletes a Machine if nothing of it has changed: had it joined meanwhile, it would have.
    pub(super) async fn delete_unchanged(&self, machine: &Machine) -> Result<(), CallError> {
        let Meta { key, uid, resource_version } = &machine.meta;
        let preconditions =
            Preconditions { uid: Some(uid.to_string()), resource_version: Some(resource_version.to_string()) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        let api = self.of(&key.namespace, |resources| Some(&resources.machine))?;
        api.delete(&key.name, &params).await.map(drop).map_err(|error| call_error(&error))
    }
}

fn size_of(scale: ScaleObject) -> Size {
    Size {
        replicas: scale.spec.and_then(|spec| spec.replicas).unwrap_or_default(),
        resource_version: scale.metadata.resource_version.unwrap_or_default(),
    }
}

fn call_error(error: &kube::Error) -> CallError {
    let kube::Error::Api(status) = error else {
        return CallError::Unknown(error.to_string());
    };
    let message = status.message.clone();
    let after = status
        .details
        .as_ref()
        .map(|details| details.retry_after_seconds)
        .filter(|seconds| *seconds > 0)
        .map(|seconds| Duration::from_secs(seconds.into()));
    match status.code {
        422 => CallError::Rejected(message),
        409 => CallError::Conflict(message),
        429 => CallError::Busy(message, after),
        404 => CallError::Missing(message),
        // A webhook's denial is a 403 as well, which no right mends.
        401 | 403 if !message.contains("admission webhook") => CallError::Forbidden(message),
        400..=499 => CallError::Refused(message),
        _ => CallError::Unknown(format!("{} {message}", status.code)),
    }
}
