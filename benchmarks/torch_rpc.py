"""The recommender of benchmarks/parameter_server.cpp with PyTorch's RPC, servers holding the parameters, trainers
asynchronous of each other: rows and gradients travel as plain tensors, and the tower's gradients are exchanged for its new values. (Distributed
autograd and DistributedOptimizer are not used: with two asynchronous trainers backward finds the table "modified by an inplace
operation".) Prints the trainers' steps a second together, as a JSON line.

usage: torch_rpc.py SERVERS TRAINERS STEPS ROWS DIMENSION BATCH
"""
import json
import os
import socket
import sys
import time

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as multiprocessing
from torch import nn

SERVERS, TRAINERS, STEPS, ROWS, DIMENSION, BATCH = map(int, sys.argv[1:7])
USERS, ITEMS = 20_000, 5_000


def make_tower():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3 * DIMENSION, 64), nn.ReLU(), nn.Linear(64, 1))


class Table:
    """A server's part of the embedding."""

    def __init__(self, rows):
        self.weight = nn.Parameter(torch.empty(rows, DIMENSION).uniform_(-0.05, 0.05))
        self.optimizer = torch.optim.Adagrad([self.weight], lr=0.05)

    def look_up(self, rows):
        return self.weight.detach().index_select(0, rows)

    def push(self, rows, gradient):
        self.weight.grad = torch.sparse_coo_tensor(rows.unsqueeze(0), gradient, self.weight.shape)
        self.optimizer.step()


class Tower:
    """The dense layers, on the first server."""

    def __init__(self):
        self.module = make_tower()
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3)

    def update(self, gradients):
        for parameter, gradient in zip(self.module.parameters(), gradients):
            parameter.grad = gradient
        self.optimizer.step()
        return [parameter.detach() for parameter in self.module.parameters()]


TABLE = TOWER = None


def look_up(rows):
    return TABLE.look_up(rows)


def push(rows, gradient):
    TABLE.push(rows, gradient)


def update_tower(gradients):
    return TOWER.update(gradients)


def serve(rank):
    global TABLE, TOWER
    TABLE = Table(ROWS // SERVERS)
    if rank == 0:
        TOWER = Tower()


def hashed(ids, offset):
    return torch.remainder((ids + offset) * 2_654_435_761, ROWS)


def batches_of(trainer):
    generator = torch.Generator().manual_seed(trainer)
    return [(torch.randint(USERS, (BATCH,), generator=generator), torch.randint(ITEMS, (BATCH,), generator=generator),
             torch.randint(2, (BATCH,), generator=generator).float()) for _ in range(50)]


def pieces_of(unique):
    """The rows of each server, counted from its first."""
    cuts = torch.searchsorted(unique, torch.arange(1, SERVERS) * (ROWS // SERVERS)).tolist()
    return cuts, [piece - i * (ROWS // SERVERS) for i, piece in enumerate(torch.tensor_split(unique, cuts))]


def rate_of(step):
    """Steps a second of one trainer."""
    begin = 0.0
    for number in range(STEPS // TRAINERS + 20):
        if number == 20:
            begin = time.perf_counter()
        step(number)
    return (STEPS // TRAINERS) / (time.perf_counter() - begin)


def train(trainer):
    torch.set_num_threads(1)
    tower = make_tower()
    batches = batches_of(trainer)
    loss_of = nn.BCEWithLogitsLoss()

    def step(number):
        user, item, label = batches[number % len(batches)]
        unique, inverse = torch.unique(torch.cat((hashed(user, 0), hashed(item, USERS))), return_inverse=True)
        cuts, pieces = pieces_of(unique)
        rows = torch.cat([future.wait() for future in [rpc.rpc_async(f"ps{i}", look_up, (piece,)) for i, piece in enumerate(pieces)]])
        rows.requires_grad_(True)
        both = rows.index_select(0, inverse)
        a, b = both[:BATCH], both[BATCH:]
        loss = loss_of(tower(torch.cat((a, b, a * b), 1)).squeeze(1), label)
        tower.zero_grad()
        loss.backward()
        futures = [rpc.rpc_async(f"ps{i}", push, (piece, gradient))
                   for i, (piece, gradient) in enumerate(zip(pieces, torch.tensor_split(rows.grad, cuts)))]
        values = rpc.rpc_sync("ps0", update_tower, ([parameter.grad for parameter in tower.parameters()],))
        with torch.no_grad():
            for parameter, value in zip(tower.parameters(), values):
                parameter.copy_(value)
        for future in futures:
            future.wait()

    return rate_of(step)


def task(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TP_SOCKET_IFNAME="lo")
    torch.set_num_threads(1)
    name = f"ps{rank}" if rank < SERVERS else f"trainer{rank - SERVERS}" if rank < SERVERS + TRAINERS else "master"
    if rank < SERVERS:
        serve(rank)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(num_worker_threads=4))
    if name == "master":
        rates = [future.wait() for future in [rpc.rpc_async(f"trainer{i}", train, (i,), timeout=0) for i in range(TRAINERS)]]
        print(json.dumps({"steps_per_second": sum(rates)}), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        free = found.getsockname()[1]
    count = SERVERS + TRAINERS + 1
    multiprocessing.spawn(task, args=(count, free), nprocs=count)
