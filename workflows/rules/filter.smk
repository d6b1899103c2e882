# Off by default (filter.enabled): POD5 files that hold the reads of the BAM alone.


# One upstream with the package escapepod; the tag stands in workflows/pins.toml.
rule install_escpod:
    output:
        tool=f"{config['results']}/tools/escpod-{PINS['escpod']['tag']}/bin/escpod",
    log:
        f"{config['results']}/logs/install_escpod.log",
    benchmark:
        f"{config['results']}/benchmarks/install_escpod.tsv"
    conda:
        "../envs/escpod.yaml"
    threads: 4
    resources:
        mem_mb=8000,
        runtime=config["runtime"]["install"],
    params:
        git=PINS["escpod"]["git"],
        tag=PINS["escpod"]["tag"],
        root=lambda wildcards, output: Path(output.tool).parent.parent,
    shell:
        "cargo install --locked --jobs {threads} --git {params.git:q} --tag {params.tag:q} --root {params.root:q} escpod"
        " &> {log:q}"


rule filter_pod5:
    input:
        tool=rules.install_escpod.output.tool,
        pod5=lambda wildcards: SAMPLES[wildcards.sample]["pod5"],
        bam=lambda wildcards: PLACES.bam(wildcards.sample),
    output:
        pod5=f"{config['results']}/pod5/{{sample}}.pod5",
    log:
        f"{config['results']}/logs/filter_pod5/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/filter_pod5/{{sample}}.tsv"
    conda:
        "../envs/escpod.yaml"
    threads: 4
    resources:
        mem_mb=4000,
        runtime=config["runtime"]["filter"],
    shell:
        "{input.tool:q} filter --bam {input.bam:q} --output {output.pod5:q} {input.pod5:q} &> {log:q}"
