//! The model of the groups that scenarios create: an existing MachineDeployment with its infrastructure template.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{groups::is_group, objects::Objects};

/// The spec of Machines here, and the capacity of their Nodes.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// `spec.template.spec` of its MachineDeployment.
    pub(super) machine: Value,
    /// The kind of its infrastructure template.
    pub(super) template_kind: String,
    /// The spec of that template.
    template_spec: Value,
    /// The CPU of a Node in millicores.
    pub(super) cpu: i64,
    /// The memory of a Node.
    pub(super) memory: String,
}

impl Model {
    /// Reads the MachineDeployment and its template.
    pub(super) async fn read(objects: &Objects, name: &str) -> Result<Self> {
        let deployment = objects.get("MachineDeployment", name).await?;
        let what = || format!("MachineDeployment {name}");
        ensure!(!is_group(&deployment), "{} is a group itself: take its maximum size off", what());
        let machine = deployment.data["spec"]["template"]["spec"].clone();
        let reference = &machine["infrastructureRef"];
        let kind = reference["kind"].as_str().context("no infrastructureRef").with_context(what)?.to_owned();
        let template = reference["name"].as_str().context("an infrastructureRef without name").with_context(what)?;
        let template = objects.get(&kind, template).await?;
        let capacity = &template.data["status"]["capacity"];
        let said = || format!("status.capacity of its {kind} is {capacity}: it must say cpu and memory");
        let cpu = milli(&capacity["cpu"]).filter(|cpu| *cpu > 0).with_context(said).with_context(what)?;
        let memory = text(&capacity["memory"]).with_context(said).with_context(what)?;
        Ok(Self { machine, template_spec: template.data["spec"].clone(), template_kind: kind, cpu, memory })
    }

    /// Returns another template of the same Machines.
    pub(super) fn template(&self, metadata: &Value) -> Value {
        json!({ "kind": self.template_kind, "metadata": metadata, "spec": self.template_spec })
    }
}

fn text(quantity: &Value) -> Option<String> {
    match quantity {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses a CPU quantity as millicores.
pub(super) fn milli(quantity: &Value) -> Option<i64> {
    let text = text(quantity)?;
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => text.parse::<i64>().ok()?.checked_mul(1000),
    }
}
