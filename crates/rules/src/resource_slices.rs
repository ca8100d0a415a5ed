//! The ResourceSlices of a Node that would join. Nothing sends them: the protocol has no field yet
//! (kubernetes/autoscaler#10303).

use std::collections::BTreeMap;

use k8s_pb::{
    api::resource::v1::{Device, DeviceAttribute, DeviceCapacity, ResourcePool, ResourceSlice, ResourceSliceSpec},
    apimachinery::pkg::{api::resource::Quantity, apis::meta::v1::ObjectMeta},
};
use serde_json::Value;

use crate::{Driver, DriverKind, Source, drivers::MOST_DEVICES};

/// Returns the ResourceSlices of a Node with this name: for each driver of devices a pool of the Node's name, or as many
/// as its Nodes have, and for those of an annotation the devices that Cluster Autoscaler's own provider makes.
pub fn resource_slices(drivers: &[Driver], node: &str) -> Vec<ResourceSlice> {
    let of_devices = drivers.iter().filter(|driver| driver.kind == DriverKind::Dra && driver.count > 0);
    of_devices.flat_map(|driver| slices_of(driver, node)).collect()
}

fn slices_of(driver: &Driver, node: &str) -> Vec<ResourceSlice> {
    let devices = devices(driver);
    let number = usize::try_from(driver.pools).unwrap_or(1).clamp(1, devices.len().max(1));
    let (each, more) = (devices.len() / number, devices.len() % number);
    let begin = |pool: usize| pool * each + pool.min(more);
    let pools = (0..number).map(|pool| (numbered(node, pool), &devices[begin(pool)..begin(pool + 1)]));
    let slices = pools.flat_map(|(pool, devices)| {
        let slices = devices.chunks(usize::try_from(MOST_DEVICES).unwrap_or(usize::MAX));
        let count = i64::try_from(slices.len()).unwrap_or(i64::MAX);
        slices.map(move |devices| (pool.clone(), count, devices))
    });
    let slice = |(number, (pool, count, devices)): (usize, (String, i64, &[Device]))| ResourceSlice {
        metadata: Some(ObjectMeta {
            name: Some(numbered(&format!("{node}-{}", driver.name), number)),
            ..ObjectMeta::default()
        }),
        spec: Some(ResourceSliceSpec {
            driver: Some(driver.name.clone()),
            node_name: Some(node.to_owned()),
            pool: Some(ResourcePool { name: Some(pool), generation: None, resource_slice_count: Some(count) }),
            devices: devices.to_vec(),
            ..ResourceSliceSpec::default()
        }),
    };
    slices.enumerate().map(slice).collect()
}

/// Returns the name of the first as it is, and those of more with their numbers.
fn numbered(name: &str, number: usize) -> String {
    if number == 0 { name.to_owned() } else { format!("{name}-{number}") }
}

fn devices(driver: &Driver) -> Vec<Device> {
    let named = |number| Device { name: Some(format!("gpu-{number}")), ..Device::default() };
    if let Source::Annotation(_) = driver.source {
        let gpu = DeviceAttribute { string: Some("gpu".to_owned()), ..DeviceAttribute::default() };
        let attributes = BTreeMap::from([("type".to_owned(), gpu)]);
        return (0..driver.count).map(|number| Device { attributes: attributes.clone(), ..named(number) }).collect();
    }
    let alike = driver.alike.iter().flat_map(|(text, count)| vec![device(text); *count as usize]);
    // Nodes differ in the others.
    let all = alike.chain(std::iter::repeat(Device::default())).zip(0..driver.count);
    all.map(|(device, number)| Device { name: Some(format!("device-{number}")), ..device }).collect()
}

/// Returns a device with these attributes and this capacity, which are JSON of the API.
fn device(text: &str) -> Device {
    let alike: Value = serde_json::from_str(text).unwrap_or_default();
    let values = |field: &str| alike[field].as_object().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let attribute = |(name, value): (String, Value)| {
        let attribute = DeviceAttribute {
            int: value["int"].as_i64(),
            bool: value["bool"].as_bool(),
            string: text(&value["string"]),
            version: text(&value["version"]),
        };
        (name, attribute)
    };
    let capacity = |(name, value): (String, Value)| {
        let value = text(&value["value"]).map(|string| Quantity { string: Some(string) });
        (name, DeviceCapacity { value, ..DeviceCapacity::default() })
    };
    Device {
        attributes: values("attributes").into_iter().map(attribute).collect(),
        capacity: values("capacity").into_iter().map(capacity).collect(),
        ..Device::default()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{capi::CAPACITY_PREFIX, drivers::drivers, testing::annotations};

    #[test]
    fn devices_are_a_slice_of_the_node_as_in_tree() {
        let stated = [("dra-driver", "gpu.nvidia.com"), ("gpu-count", "2"), ("csi-driver", "a=1")];
        let slices = resource_slices(&drivers(&annotations(CAPACITY_PREFIX, &stated)).0, "workers-template");
        let [ResourceSlice { metadata: Some(metadata), spec: Some(spec) }] = slices.as_slice() else {
            panic!("{slices:?}")
        };
        assert_eq!(metadata.name.as_deref(), Some("workers-template-gpu.nvidia.com"));
        assert_eq!(
            (spec.driver.as_deref(), spec.node_name.as_deref()),
            (Some("gpu.nvidia.com"), Some("workers-template"))
        );
        let pool = spec.pool.as_ref().unwrap();
        assert_eq!((pool.name.as_deref(), pool.resource_slice_count), (Some("workers-template"), Some(1)));
        let device =
            |device: &Device| (device.name.clone().unwrap(), device.attributes["type"].string.clone().unwrap());
        let devices: Vec<_> = spec.devices.iter().map(device).collect();
        assert_eq!(devices, [("gpu-0".to_owned(), "gpu".to_owned()), ("gpu-1".to_owned(), "gpu".to_owned())]);
    }

    fn remembered(count: u32, pools: u32) -> Driver {
        let name = "gpu.example.com".to_owned();
        Driver { kind: DriverKind::Dra, name, count, source: Source::Default, pools, alike: BTreeMap::new() }
    }

    #[test]
    fn devices_are_in_as_many_pools_as_they_were() {
        let sizes = |count, pools| {
            let slices = resource_slices(&[remembered(count, pools)], "node");
            slices.iter().map(|slice| slice.spec.as_ref().unwrap().devices.len()).collect::<Vec<_>>()
        };
        assert_eq!((sizes(5, 4), sizes(2, 3)), (vec![2, 1, 1, 1], vec![1, 1]));
        let slices = resource_slices(&[remembered(5, 2)], "node");
        let of = |slice: &ResourceSlice| {
            let spec = slice.spec.as_ref().unwrap();
            let pool = spec.pool.as_ref().unwrap();
            (pool.name.clone().unwrap(), pool.resource_slice_count.unwrap(), spec.devices.len())
        };
        assert_eq!(slices.iter().map(of).collect::<Vec<_>>(), [("node".to_owned(), 1, 3), ("node-1".to_owned(), 1, 2)]);
    }

    #[test]
    fn a_driver_with_many_devices_has_several_slices() {
        let slices = resource_slices(&[remembered(300, 1)], "node");
        let sizes: Vec<_> = slices.iter().map(|slice| slice.spec.as_ref().unwrap().devices.len()).collect();
        assert_eq!(sizes, [128, 128, 44]);
        let names: BTreeSet<_> = slices.iter().map(|slice| slice.metadata.as_ref().unwrap().name.clone()).collect();
        assert_eq!(names.len(), 3);
        let count = |slice: &ResourceSlice| slice.spec.as_ref().unwrap().pool.as_ref().unwrap().resource_slice_count;
        assert!(slices.iter().all(|slice| count(slice) == Some(3)));
    }
}
