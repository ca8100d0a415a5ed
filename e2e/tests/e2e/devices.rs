//! Devices of Dynamic Resource Allocation: what a driver publishes of a Node, and what is made of it for a Node that would
//! join.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use e2e::world::World;
use http::{Request, header};
use k8s_pb::api::resource::v1::ResourceSlice;
use prost::Message;
use rules::{Driver, DriverKind, Source, drivers::Offers, resource_slices::resource_slices};
use serde_json::{Value, json};

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";

/// An API server decodes slices with the types that Cluster Autoscaler has, and validates them.
pub(crate) async fn slices_that_are_made_are_decoded_and_valid(world: &World) -> Result<()> {
    let device = |number: u32| {
        json!({
            "name": format!("gpu-{number}"),
            "attributes": {
                "productName": { "string": "Example L4" },
                "driverVersion": { "version": "550.54.15" },
                "virtual": { "bool": false },
                "example.com/lanes": { "int": 16 },
                "index": { "int": number },
                "uuid": { "string": format!("GPU-{number}") },
            },
            "capacity": { "memory": { "value": "23034Mi" } },
        })
    };
    let node = format!("{}-node", world.cluster);
    let published = json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": { "name": format!("{node}-gpu") },
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node,
            "pool": { "name": node, "generation": 1, "resourceSliceCount": 1 },
            "devices": [device(0), device(1)],
        },
    });
    let published = post(world, "application/json", published.to_string().into_bytes()).await?;

    let offers = Offers::of(None, Some(&[published]));
    let devices = &offers.devices.context("the slices aren't complete")?["gpu.example.com"];
    let remembered = driver("gpu.example.com", devices.count, Source::Default, devices.alike.clone());
    let annotation = Source::Annotation("capacity.cluster-autoscaler.kubernetes.io/dra-driver".into());
    let stated = driver("stated.example.com", 2, annotation, BTreeMap::new());
    let many = driver("many.example.com", 300, Source::Default, BTreeMap::new());
    let template = format!("{}-template", world.cluster);
    let mut decoded: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for slice in resource_slices(&[remembered, stated, many], &template) {
        let spec = post(world, "application/vnd.kubernetes.protobuf", envelope(&slice)).await?["spec"].take();
        ensure!(spec["nodeName"] == *template && spec["pool"]["name"] == *template, "{spec}");
        let driver = spec["driver"].as_str().context("a slice without driver")?;
        let devices = spec["devices"].as_array().context("a slice without devices")?;
        decoded.entry(driver.to_owned()).or_default().extend(devices.iter().cloned());
    }

    let alike = |number: u32| {
        json!({
            "name": format!("device-{number}"),
            "attributes": {
                "productName": { "string": "Example L4" },
                "driverVersion": { "version": "550.54.15" },
                "virtual": { "bool": false },
                "example.com/lanes": { "int": 16 },
            },
            "capacity": { "memory": { "value": "23034Mi" } },
        })
    };
    assert_eq!(decoded["gpu.example.com"], [alike(0), alike(1)]);
    let gpu = |number: u32| json!({ "name": format!("gpu-{number}"), "attributes": { "type": { "string": "gpu" } } });
    assert_eq!(decoded["stated.example.com"], [gpu(0), gpu(1)]);
    assert_eq!(decoded["many.example.com"].len(), 300);
    Ok(())
}

fn driver(name: &str, count: u32, source: Source, alike: BTreeMap<String, u32>) -> Driver {
    Driver { kind: DriverKind::Dra, name: name.to_owned(), count, source, pools: 1, alike }
}

/// Creates a ResourceSlice, and returns it as the API server has it.
async fn post(world: &World, content_type: &str, body: Vec<u8>) -> Result<Value> {
    let request = Request::post(SLICES)
        .header(header::CONTENT_TYPE, content_type)
        .header(header::ACCEPT, "application/json")
        .body(body)?;
    world.objects.client().request(request).await.context("creating a ResourceSlice")
}

/// How an API server takes an encoded object: `k8s`, a zero, and what runtime.Unknown holds.
fn envelope(slice: &ResourceSlice) -> Vec<u8> {
    #[derive(Message)]
    struct TypeMeta {
        #[prost(string, tag = "1")]
        api_version: String,
        #[prost(string, tag = "2")]
        kind: String,
    }
    #[derive(Message)]
    struct Unknown {
        #[prost(message, tag = "1")]
        type_meta: Option<TypeMeta>,
        #[prost(bytes = "vec", tag = "2")]
        raw: Vec<u8>,
    }
    let type_meta = TypeMeta { api_version: "resource.k8s.io/v1".to_owned(), kind: "ResourceSlice".to_owned() };
    let unknown = Unknown { type_meta: Some(type_meta), raw: slice.encode_to_vec() };
    [b"k8s\0".as_slice(), &unknown.encode_to_vec()].concat()
}
