"""The command lines of the user guide's sections 2 to 6, as they stand there; building the image aside."""

ATTACH = r"""
jq --rawfile src train_ddp.py \
    '.spec.task_template.configs = [{"mounts": ["/app/train_ddp.py"], "value": $src}]' \
    run.json > run.full.json
"""
RUN = r"""
astra astraeus run --name ddp-resnet50 --image registry.example.com/ml/ddp-check:1 \
    --gpus 16 --machines 2 --cpus 12 --mem 100G --time 1h \
    -e NCCL_DEBUG=INFO -e NCCL_DEBUG_SUBSYS=INIT,NET \
    -- bash -c 'exec torchrun --nnodes=$WORLD_SIZE --nproc-per-node=$ASTRAEUS_GPU_COUNT --node-rank=$RANK --master-addr=$MASTER_ADDR --master-port=$MASTER_PORT /app/train_ddp.py'
"""  # noqa: E501 - as it stands there
SUBMIT = r"""
curl -fsS -X POST "$API/runs" -H "Authorization: Bearer $ASTRAEUS_TOKEN" \
    -H 'content-type: application/json' -d @run.full.json | jq -r .metadata.name
"""
RUNS = "astra astraeus runs"
LOGS = "astra astraeus logs ddp-resnet50-0 | tail -n 400 | grep -E 'worker |NET/IB|all_reduce|throughput'"
DELETE = "astra astraeus delete ddp-resnet50"
DELETE_BY_API = 'curl -fsS -X DELETE "$API/runs/ddp-resnet50" -H "Authorization: Bearer $ASTRAEUS_TOKEN"'

HEAD = "NAME                          CLUSTER       STATE       REASON\n"
