rule prepare:
    input:
        pod5=lambda wildcards: PLACES.pod5(wildcards.sample),
        bam=lambda wildcards: PLACES.bam(wildcards.sample),
        reference=config["reference"],
        named=pipeline.given(
            *(config["prepare"][name] for name in ("sites", "kmer_table", "options"))
        ),
    output:
        corpus=directory(f"{config['results']}/corpora/{{sample}}"),
    log:
        f"{config['results']}/logs/prepare/{{sample}}.log",
    benchmark:
        f"{config['results']}/benchmarks/prepare/{{sample}}.tsv"
    conda:
        "../envs/leech.yaml"
    threads: config["prepare"]["workers"]
    resources:
        mem_mb=lambda wildcards, threads: pipeline.cut_memory_mb(threads),
        runtime=config["runtime"]["prepare"],
    params:
        label=lambda wildcards: SAMPLES[wildcards.sample]["label"],
        options=pipeline.prepare_options(config),
    shell:
        "leech data prepare --pod5 {input.pod5:q} --bam {input.bam:q} --reference {input.reference:q}"
        " --sample {wildcards.sample:q} --label {params.label:q} {params.options:q} --workers {threads}"
        " -o {output.corpus:q} &> {log:q}"


rule merge:
    input:
        corpora=PLACES.corpora(),
    output:
        corpus=directory(f"{config['results']}/corpus"),
    log:
        f"{config['results']}/logs/merge.log",
    benchmark:
        f"{config['results']}/benchmarks/merge.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: pipeline.merge_memory_mb(input.corpora),
        runtime=config["runtime"]["merge"],
    params:
        options=pipeline.merge_options(config),
    shell:
        "leech data merge {input.corpora:q} {params.options:q} -o {output.corpus:q} &> {log:q}"


rule inspect:
    input:
        corpus=rules.merge.output.corpus,
        corpora=PLACES.corpora(),
    output:
        page=f"{config['results']}/corpus.html",
    log:
        f"{config['results']}/logs/inspect.log",
    benchmark:
        f"{config['results']}/benchmarks/inspect.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: pipeline.merge_memory_mb(input.corpora),
        runtime=config["runtime"]["merge"],
    shell:
        "leech data inspect {input.corpus:q} --html {output.page:q} &> {log:q}"


# Writes check.json into the corpus as well, where training looks for it.
rule check:
    input:
        corpus=rules.merge.output.corpus,
        corpora=PLACES.corpora(),
    output:
        check=f"{config['results']}/check.json",
    log:
        f"{config['results']}/logs/check.log",
    benchmark:
        f"{config['results']}/benchmarks/check.tsv"
    conda:
        "../envs/leech.yaml"
    threads: 1
    resources:
        mem_mb=lambda wildcards, input: 1000 + pipeline.merge_memory_mb(input.corpora),
        runtime=config["runtime"]["check"],
    params:
        options=pipeline.check_options(config),
    shell:
        "leech data check {input.corpus:q} {params.options:q} -o {output.check:q} &> {log:q}"
