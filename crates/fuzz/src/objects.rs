//! Fuzzes objects as an API server sends them: no object's decoder panics.

use std::str;

use change_stream::changes::{Filter, Kind};
use rules::capi::{
    Cluster, Context, DEFAULT_GROUP, InfrastructureTemplate, Interner, Machine, Node, ScalableKind, ScalableResource,
};
use shared_informer::Projection;

/// Decodes an object: the first byte chooses the kind, the others are its JSON. `watch` reads each one too.
pub fn objects(data: &[u8]) {
    let Some((kind, json)) = data.split_first() else { return };
    let Ok(json) = str::from_utf8(json) else { return };
    let pod = Kind { group: String::new(), version: "v1".into(), kind: "Pod".into(), plural: "pods".into() };
    let filter = Filter::new(pod, &[]);
    read(&Projection::new("watch", move |_, object| Ok(filter.snapshot(object))), json);
    let context = Context::new(DEFAULT_GROUP);
    match kind % 7 {
        0 => read(&Machine::projection(&context), json),
        1 => read(&Node::projection(&context), json),
        2 => read(&Cluster::projection(), json),
        3 => read(&InfrastructureTemplate::projection(), json),
        4 => read(&ScalableResource::projection(ScalableKind::MachineDeployment, &context), json),
        5 => read(&ScalableResource::projection(ScalableKind::MachineSet, &context), json),
        _ => read(&ScalableResource::projection(ScalableKind::MachinePool, &context), json),
    }
}

fn read<T>(projection: &Projection<T>, json: &str) {
    let Some(object) = projection.read(json, &Interner::default()) else { return };
    // A panic is the error of one object.
    let panicked = object.content.is_err_and(|error| error.message().contains("panicked"));
    assert!(!panicked, "a decoder panicked: {json}");
}
