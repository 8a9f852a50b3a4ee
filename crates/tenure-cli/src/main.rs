#[cfg_attr(not(test), expect(dead_code, reason = "the commands that run something arrive next"))]
mod supervise;

fn main() {}
