//! The read path on the index alone: Node to group, instances, groups, and the small reads, in two fleets. The cost of
//! each answer must grow with the answer and not with the fleet, so every read is also timed in a fleet five times as
//! large: 200 groups with 5,000 Machines, and 1,000 groups with 25,000.

// A bench may panic: it is a test of its own input.
#![allow(clippy::expect_used)]

mod fleet;

use std::{collections::HashMap, hint::black_box};

use criterion::{Criterion, criterion_group, criterion_main};
use index::{Index, NodeQuery};
use rules::GroupId;

const MACHINES_PER_GROUP: usize = 25;
const FLEETS: [usize; 2] = [200, 1_000];

fn reads(criterion: &mut Criterion) {
    for groups in FLEETS {
        let index = Index::new(fleet::rules());
        fleet::fill(&index, groups, MACHINES_PER_GROUP);
        let machines = groups * MACHINES_PER_GROUP;
        let fleet = format!("{groups} groups, {machines} machines");
        let id = GroupId::parse("MachineDeployment/fleet/pool-77").expect("an id");
        let annotations = HashMap::new();
        let name = "pool-77-abcde-7";
        let provider_id = format!("cloud:///zone-a/{name}");
        let query = NodeQuery { name, provider_id: &provider_id, annotations: &annotations };
        assert_eq!(index.group_of_node(query).expect("the Node has a group").id, id);
        assert_eq!(index.instances(&id).expect("the group answers").len(), MACHINES_PER_GROUP);
        assert_eq!(index.groups().len(), groups);

        let mut bench = |read: &str, run: &dyn Fn()| {
            criterion.bench_function(&format!("{read} ({fleet})"), |bencher| bencher.iter(run));
        };
        bench("group of a node", &|| {
            black_box(index.group_of_node(black_box(query)));
        });
        bench("25 instances of a group", &|| {
            black_box(index.instances(black_box(&id)));
        });
        bench("target size", &|| {
            black_box(index.target_size(black_box(&id)));
        });
        bench("template and options", &|| {
            black_box(index.served(black_box(&id)));
        });
        // This answer grows with the number of groups: the list itself is shared, its copy to the wire is not.
        bench("all groups", &|| {
            black_box(index.groups().iter().map(|group| group.text.len()).sum::<usize>());
        });
        bench("refresh without a change", &|| index.refresh());
    }
}

criterion_group!(benches, reads);
criterion_main!(benches);
