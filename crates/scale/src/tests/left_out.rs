//! A Machine that the watch has left out, since its namespace has more objects than are kept.

use super::{
    ABCD,
    fake::{World, group, nodes},
    finishing::wait,
};

#[tokio::test(start_paused = true)]
async fn a_machine_that_the_watch_leaves_out_is_not_taken_for_gone() {
    let world = World::new(4, &ABCD);
    world.scale.delete(group(), nodes(&["b"])).await.unwrap();
    assert_eq!(world.api.log(), ["b lowered"]);
    world.copy.leave_out("b");
    world.api.follow();
    wait(&world).await;
    assert_eq!(world.api.log().len(), 1, "b hasn't gone");
}
