fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    if std::env::args().nth(1).as_deref() == Some("x") {
        use tenure_sim::explore::*;
        let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
        let mut l = Limits::small(n);
        if let Some(s) = std::env::args().nth(3) { let v: Vec<u64> = s.split(',').map(|x| x.parse().unwrap()).collect(); l.epochs = v[0]; l.faults = v[1] as u8; l.crashes = v[2] as u8; l.pauses = v[3] as u8; l.step_downs = v[4] as u8; l.states = v[5]; l.time = std::time::Duration::from_secs(v[6]); }
        let f = explore(&l, None);
        println!("{} states {} transitions depth {} complete {} {:?} {:#?}", f.states, f.transitions, f.depth, f.complete, f.took, f.violation);
        return;
    }
    let from: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let n: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    if n == 0 {
        let o = tenure_sim::run(from, &tenure_sim::Options { record: true, ..Default::default() });
        for n in &o.notes { println!("{:>7} {} {:?}", n.at, o.nodes[n.node], n.what); }
        println!("{:?}", o.violations);
        return;
    }
    let t = std::time::Instant::now();
    let mut sim = 0; let mut bad = 0;
    let mut by = std::collections::BTreeMap::new();
    for seed in from..from + n {
        let o = tenure_sim::run(seed, &Default::default());
        sim += o.simulated_ms;
        if let Some(v) = o.violations.first() { bad += 1; let e = by.entry(v.check).or_insert((0, seed, v.clone())); e.0 += 1; }
    }
    println!("{n} seeds {bad} bad {} sim s/s", sim as f64 / 1000.0 / t.elapsed().as_secs_f64());
    for (k, v) in by { println!("{k}: {v:?}"); }
}
