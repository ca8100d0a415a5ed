//! Makes the images of clusters with real Nodes, and prints their names: `cargo run -p e2e --bin images`. It needs
//! root, Docker and a network.

use anyhow::Result;
use e2e::images::Images;

#[tokio::main]
async fn main() -> Result<()> {
    let images = Images::make().await?;
    let load_balancer = images.load_balancer().await?;
    println!("node           {}", images.node);
    println!("project        {} {}", images.project.name, images.project.digest);
    match load_balancer {
        Some(image) => println!("load balancer  {}", image.name()),
        None => println!("load balancer  CAPD pulls its own"),
    }
    Ok(())
}
