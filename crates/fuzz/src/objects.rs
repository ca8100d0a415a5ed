//! Fuzzes objects and watches as an API server sends them: no object's decoder panics, and a watch has the same events
//! line by line and byte by byte.

use std::{fmt, str, sync::LazyLock};

use change_stream::changes::{Filter, Kind};
use rules::capi::{
    Cluster, Context, DEFAULT_GROUP, InfrastructureTemplate, Interner, Machine, Node, ScalableKind, ScalableResource,
};
use serde_json::Value;
use shared_informer::{Projection, ReadFrames, read_frames};
use tokio::runtime::Runtime;

/// The limit of an event's length in bytes.
const LONGEST: usize = 1 << 10;

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

/// Decodes a watch: the first byte sets the size of the chunks of its body, which is the rest. Line by line and byte by
/// byte it must have the same events.
pub fn watches(data: &[u8]) {
    let Some((part, body)) = data.split_first() else { return };
    let part = 1 + 16 * usize::from(*part);
    same_frames(&Machine::projection(&Context::new(DEFAULT_GROUP)), body, part);
    same_frames(&Projection::<Value>::serde(), body, part);
}

fn same_frames<T: fmt::Debug>(projection: &Projection<T>, body: &[u8], part: usize) {
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime"));
    let read = |carefully| RUNTIME.block_on(read_frames(body, (part, LONGEST), projection, carefully));
    let (quick, careful): (ReadFrames, ReadFrames) = (read(false), read(true));
    assert_eq!(quick.found, careful.found);
}
